"""Reading what a gate wrote."""

from pathlib import Path

import msgspec

from gpuprof.collectors.errors import CommandError, problem_of
from gpuprof.collectors.schema_version import refuse_newer, schema_version
from gpuprof.roofline.gate.result import GATE_FILE, GATE_SCHEMA_VERSION, GateResult


def read_result(path: Path) -> GateResult:
    """The result in a gate's folder, or in the file `path`. Raises `CommandError` (exit 2)."""
    file = path / GATE_FILE if path.is_dir() else path
    try:
        content = file.read_bytes()
        refuse_newer(file, schema_version(content), GATE_SCHEMA_VERSION)
        return msgspec.json.decode(content, type=GateResult)
    except OSError as error:
        raise CommandError(f"{file}: {problem_of(error)}", exit_code=2) from error
    # msgspec's errors, and invalid UTF-8.
    except ValueError as error:
        raise CommandError(f"{file} is no gate's result: {error}", exit_code=2) from error
