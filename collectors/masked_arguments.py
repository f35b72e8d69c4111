"""Command lines without the secrets in them, as they are kept in captures, pages and logs.

A secret is known by the name before it: `--wandb-key VALUE`, `--wandb-key=VALUE`,
`API_KEY=VALUE`, `{"password": "VALUE"}`, and what stands before the @ of an address. One that
stands alone cannot be told from any other argument.
"""

import re
from collections.abc import Iterable
from typing import Final

MASK: Final = "***"

# Alone or within a longer word: "dbpassword", "apikeys".
_ANYWHERE: Final = ("secret", "passw", "passphrase", "credential", "apikey", "bearer")
# As a word of a name or at its end: "hf_token", "wandbKey", "authtoken".
_AT_THE_END: Final = ("key", "keys", "token", "auth", "authorization", "pwd")
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
# Others must not match: their values may hold whole command lines.
_LIKELY: Final = rf"(?=[\w.\-/]*(?i:{'|'.join(_ANYWHERE + _AT_THE_END)}))"
_NAME: Final = rf"(?<![\w.-])([-+~]*{_LIKELY}[A-Za-z_][\w.\-/]*)"
_VALUE: Final = r"""("[^"]*"|'[^']*'|[^\s,;&"'{}()\[\]]+)"""
# name=value, name: value and "name": "value".
_ASSIGNED: Final = re.compile(rf"""{_NAME}(["']?\s*(?:=|:(?!//))\s*){_VALUE}""")
# Within one argument, such as that of `sh -c`.
_FOLLOWED: Final = re.compile(rf"(?<![\w.-])(--?{_LIKELY}[A-Za-z][\w.\-]*)(\s+)(?!-){_VALUE}")
_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*://)([^/?#\s@:]*)(:?)([^/?#\s]*)@")
_OPTION: Final = re.compile(r"--?[A-Za-z][\w.\-]*")
# Names before the @ that everybody uses.
_OPEN_USERS: Final = frozenset({"git", "hg", "ssh"})


def masked_arguments(words: Iterable[str]) -> tuple[str, ...]:
    """The words of a command line, with `***` in the place of each secret."""
    masked: list[str] = []
    name = ""
    for word in words:
        # A name that is followed by another option had no value.
        if name and not word.startswith("--") and _is_secret(name, word):
            masked.append(MASK)
            name = ""
            continue
        masked.append(masked_text(word))
        name = word if _OPTION.fullmatch(word) else ""
    return tuple(masked)


def masked_text(text: str) -> str:
    """A command line as one text, or one word of it, with `***` in the place of each secret."""
    text = _ADDRESS.sub(_without_password, text)
    text = _ASSIGNED.sub(_without_value, text)
    return _FOLLOWED.sub(_without_value, text)


def _without_value(found: re.Match[str]) -> str:
    name, between, value = found.groups()
    quote = value[0] if value[0] in "\"'" else ""
    if not _is_secret(name, value.strip("\"'")):
        return found[0]
    return f"{name}{between}{quote}{MASK}{quote}"


def _without_password(found: re.Match[str]) -> str:
    scheme, user, colon, _ = found.groups()
    if colon:
        return f"{scheme}{user}:{MASK}@"
    # A token alone, as of services that host code.
    return found[0] if user in _OPEN_USERS else f"{scheme}{MASK}@"


def _is_secret(name: str, value: str) -> bool:
    """Whether `value` after `name` is one; "--pad-token-id 0" and "--key-dim 64" are none."""
    plain = name.lower()
    if any(part in plain.replace("-", "").replace("_", "") for part in _ANYWHERE):
        return True
    words = [word.lower() for word in _WORD.findall(name)]
    at = [place for place, word in enumerate(words) if word.endswith(_AT_THE_END)]
    return bool(at) and (at[-1] == len(words) - 1 or not _NUMBER.fullmatch(value))
