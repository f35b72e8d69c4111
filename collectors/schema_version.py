"""Schema versions of stored files, which are read before the rest."""

from pathlib import Path

import msgspec

from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.files.stored_json import decode_stored


class _Versioned(msgspec.Struct):
    schema_version: int


def schema_version(content: bytes) -> int:
    """The version in JSON `content`, of which nothing else is read.

    A newer schema may not decode at all. Raises `ValueError` where there is none.
    """
    return decode_stored(content, _Versioned).schema_version


def refuse_newer(file: Path, version: int, known: int) -> None:
    """Raise `CommandError` (exit 2) where `file` is of a newer `version` than the one `known`."""
    if version > known:
        raise CommandError(
            f"{file} has schema version {version}; upgrade gpuprof to read it", exit_code=2
        )
