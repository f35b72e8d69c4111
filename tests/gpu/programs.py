"""Runs a small program under `gpuprof run`, for the visits that compare the two."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Seen:
    """What gpuprof says of a program, and what the program says of itself in its last line."""

    analysis: dict[str, Any]
    own: dict[str, float]
    capture: Path


def run_program(name: str, source: str, folder: Path) -> Seen:
    """Run `source` as a person would start it; what gpuprof printed is kept in `folder`.

    Raises `RuntimeError` with the end of it where the program fails.
    """
    script, capture = folder / f"{name}.py", folder / f"{name}.gpuprof"
    script.write_text(source)
    command = [sys.executable, "-m", "gpuprof", "run", "-f", "-o", str(capture), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    (folder / f"{name}.txt").write_text(done.stderr)
    if done.returncode:
        raise RuntimeError(done.stderr[-800:])
    analysis = json.loads((capture / "analysis.json").read_bytes())
    return Seen(analysis, json.loads(done.stdout.splitlines()[-1]), capture)
