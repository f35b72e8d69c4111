"""Other distributions that own the import or the command `gpuprof`.

Another project on the package index has this name for both. Installed beside this one, the two
write into one folder and over one command, and what runs is a mixture of them.

Read from the distributions' own files: importing importlib.metadata alone would take half as long
as `gpuprof --help`.
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gpuprof.collectors.distribution import DISTRIBUTION, install_command

_NAME: Final = "gpuprof"
# A distribution whose command starts this is this project, whatever it is called.
_OUR_COMMAND: Final = "gpuprof.profiler.cli:main"
# "torch-2.13.0.dist-info", "gpuprof.egg-info"; pip renames what it could not remove to "~orch-...".
_METADATA_FOLDER: Final = re.compile(
    r"(?P<name>[^-~][^-]*)(-(?P<version>[^-]+).*)?\.(dist|egg)-info"
)

Possession = Literal["import", "command"]


@dataclass(frozen=True)
class OtherOwner:
    """A distribution of another project that owns the import, the command, or both."""

    name: str
    # "" where its folder does not say it.
    version: str
    owns: tuple[Possession, ...]

    @property
    def finding(self) -> str:
        """ "gpuprof 0.7.1, another project, also owns the import and the command gpuprof"."""
        title = f"{self.name} {self.version}".rstrip()
        owned = " and ".join(f"the {possession}" for possession in self.owns)
        return f"{title}, another project, also owns {owned} {_NAME}"

    @property
    def remedy(self) -> str:
        """How to get rid of it: what it overwrote must be written again."""
        again = install_command("--force-reinstall", "--no-deps", DISTRIBUTION)
        return f"pip uninstall {self.name}, then {again}"


def other_owners(path: Sequence[str] | None = None, *, thorough: bool) -> Iterator[OtherOwner]:
    """The other owners among the distributions in the folders of `path` (default: `sys.path`).

    Thorough also reads the lists of files, for those whose build tool does not name their
    imports. That takes ten times as long.
    """
    seen = set()
    for folder in sys.path if path is None else path:
        for entry in _entries(folder):
            matched = _METADATA_FOLDER.fullmatch(entry)
            if matched is None or matched["name"] in seen:
                continue
            # Of two with one name the first on the path is the one that is imported.
            seen.add(matched["name"])
            owns = _possessions(os.path.join(folder, entry), thorough=thorough)
            if owns:
                yield OtherOwner(matched["name"], matched["version"] or "", owns)


def _possessions(metadata: str, *, thorough: bool) -> tuple[Possession, ...]:
    """What of ours a distribution owns; nothing where it is our own."""
    command = _console_script(_lines(f"{metadata}/entry_points.txt"))
    if command == _OUR_COMMAND:
        return ()
    imports = _NAME in _lines(f"{metadata}/top_level.txt")
    if not imports and thorough:
        record = _lines(f"{metadata}/RECORD")
        imports = any(line.startswith((f"{_NAME}/", f"{_NAME}.py,")) for line in record)
    owned: tuple[tuple[Possession, bool], ...] = (
        ("import", imports),
        ("command", command is not None),
    )
    return tuple(possession for possession, has in owned if has)


def _console_script(entry_points: list[str]) -> str | None:
    """What the command `gpuprof` of an entry_points.txt starts, None where there is none."""
    section = ""
    for line in entry_points:
        if line.startswith("["):
            section = line
        key, _, value = line.partition("=")
        if section == "[console_scripts]" and key.strip() == _NAME:
            return value.strip()
    return None


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder or ".")
    # A zip file, or a folder that is not there.
    except OSError:
        return []


def _lines(file: str) -> list[str]:
    """The lines of a file of metadata, stripped; none where it is absent or unreadable."""
    try:
        with open(file, encoding="utf-8", errors="replace") as stream:
            return [line.strip() for line in stream]
    except OSError:
        return []
