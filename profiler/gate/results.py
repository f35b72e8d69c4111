"""Reading what a gate wrote."""

from pathlib import Path

import msgspec

from gpuprof.collectors.errors import CommandError
from gpuprof.roofline.gate.result import GATE_FILE, GATE_SCHEMA_VERSION, GateResult


class _Versioned(msgspec.Struct):
    schema_version: int


def read_result(path: Path) -> GateResult:
    """The result in a gate's folder, or in the file `path`. Raises `CommandError` (exit 2)."""
    file = path / GATE_FILE if path.is_dir() else path
    try:
        content = file.read_bytes()
        # The version is read alone first: a newer schema may not decode at all.
        version = msgspec.json.decode(content, type=_Versioned).schema_version
        if version > GATE_SCHEMA_VERSION:
            raise CommandError(
                f"{file} has schema version {version}; upgrade gpuprof to read it", exit_code=2
            )
        return msgspec.json.decode(content, type=GateResult)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}", exit_code=2) from error
    # msgspec's errors, and invalid UTF-8.
    except ValueError as error:
        raise CommandError(f"{file} is no gate's result: {error}", exit_code=2) from error
