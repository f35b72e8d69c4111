"""Runs small programs under `gpuprof run`, for the visits that compare the two."""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
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

    Raises `RuntimeError` with what was printed where the program fails.
    """
    script, capture = folder / f"{name}.py", folder / f"{name}.gpuprof"
    script.write_text(source)
    command = [sys.executable, "-m", "gpuprof", "run", "-f", "-o", str(capture), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    (folder / f"{name}.txt").write_text(done.stderr)
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
    analysis = json.loads((capture / "analysis.json").read_bytes())
    return Seen(analysis, json.loads(done.stdout.splitlines()[-1]), capture)


def compare_all(
    description: str,
    sources: Mapping[str, str],
    compared: Callable[[str, Seen], tuple[list[str], str]],
) -> int:
    """Run the programs that the command line names, all without any; 1 where one differs.

    `compared` is given a program's name and what was seen of it. It returns what differs, a line
    each, and both sides on one line.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("programs", nargs="*", default=list(sources))
    parser.add_argument("--output", type=Path, help="keep summaries and captures here")
    arguments = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.output or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in arguments.programs:
            try:
                wrong, told = compared(name, run_program(name, sources[name], folder))
            except (RuntimeError, subprocess.TimeoutExpired, OSError, KeyError, TypeError) as error:
                wrong, told = [f"{type(error).__name__}: {error}"], ""
            failed += bool(wrong)
            print(
                f"{'WRONG' if wrong else 'ok':6} {name:11} {'; '.join(wrong)}\n    {told}",
                flush=True,
            )
    return min(failed, 1)
