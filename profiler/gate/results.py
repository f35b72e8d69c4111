"""Reading what a gate wrote."""

from pathlib import Path

from gpuprof.collectors.errors import CaptureError, CommandError, problem_of
from gpuprof.collectors.files.stored_json import decode_stored, stored_content
from gpuprof.collectors.schema_version import refuse_newer, schema_version
from gpuprof.roofline.gate.result import GATE_FILE, GATE_SCHEMA_VERSION, GateResult


def read_result(path: Path) -> GateResult:
    """The result in a gate's folder, or in the file `path`. Raises `CommandError` (exit 2)."""
    file = path / GATE_FILE if path.is_dir() else path
    try:
        content = stored_content(file)
        refuse_newer(file, schema_version(content), GATE_SCHEMA_VERSION)
        return decode_stored(content, GateResult)
    except CaptureError as error:
        raise CommandError(str(error), exit_code=2) from error
    # msgspec's errors, and invalid UTF-8.
    except ValueError as error:
        message = f"{file} is no gate's result: {problem_of(error)}"
        raise CommandError(message, exit_code=2) from error
