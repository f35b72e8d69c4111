"""Which files are the program's own: neither Python's, nor of an installed package, nor ours."""

import os
import sysconfig
from types import CodeType
from typing import Any, Final

import torch

import gpuprof
from gpuprof.collectors.stacks import installed_name

# Where pip and the packagers of distributions put packages, and inductor what it generates
# (torch/_inductor/runtime/cache_dir_utils.py).
_OTHERS: Final = ("/site-packages/", "/dist-packages/", "/torchinductor_")
_INDUCTOR_VARIABLE: Final = "TORCHINDUCTOR_CACHE_DIR"
# Code without a file: of `-c` and stdin it is the program's, of notebooks too.
_WITHOUT_FILE: Final = ("<string>", "<stdin>")
_NOTEBOOK: Final = "<ipython-input"


class ProgramFiles:
    """Tells the program's files from all others."""

    def __init__(self) -> None:
        folders = [
            *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
            *torch.__path__,
            *gpuprof.__path__,
            os.environ.get(_INDUCTOR_VARIABLE, ""),
        ]
        self._ours = tuple(os.path.join(os.path.realpath(each), "") for each in gpuprof.__path__)
        self._others = tuple(os.path.join(os.path.abspath(each), "") for each in folders if each)
        self._working_folder = os.path.join(os.getcwd(), "")

    def name(self, code: CodeType, module_globals: dict[str, Any]) -> str:
        """The file of `code`, which has these globals, as `file_name`.

        Calls no function of Python but that: a tracer asks for it.
        """
        name = code.co_filename
        if name in _WITHOUT_FILE and module_globals.get("__name__") != "__main__":
            return ""
        return self.file_name(name)

    def file_name(self, name: str) -> str:
        """The file `name` as people know it, "" for what is not the program's.

        Relative to the working directory where it lies below that. Of code without a file, that of
        the main module is the program's.
        """
        if name.startswith("<"):
            return name if name.startswith(_NOTEBOOK) or name in _WITHOUT_FILE else ""
        path = name if name.startswith("/") else self._working_folder + name
        if path.startswith(self._others):
            return ""
        for folder in _OTHERS:
            if folder in path:
                return ""
        relative = path.removeprefix(self._working_folder)
        if relative.isascii():
            return relative
        # As `storable` has it: bytes of a name that are no UTF-8.
        return relative.encode("utf-8", "backslashreplace").decode()

    def stack_name(self, name: str) -> str:
        """As `file_name`, also of others' files, without where they are installed; "" for ours."""
        return self.file_name(name) or ("" if name.startswith(self._ours) else installed_name(name))
