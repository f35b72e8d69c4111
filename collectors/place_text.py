"""A place in a program as people write it."""


def place_text(file: str | None, line: int | None) -> str:
    """ "train.py:42", "train.py" where the line is unknown, "" where the file is.

    Of a file that is not below the program's working directory, which has an absolute path, the
    name alone.
    """
    if not file:
        return ""
    path = file.replace("\\", "/")
    absolute = path.startswith("/") or path[1:3] == ":/"
    name = path.rpartition("/")[2] if absolute else path
    return name if line is None else f"{name}:{line}"
