"""The programs of examples/diagnosis on a GPU: is the first finding right, and is its gain real?

    python tests/gpu/visit_diagnosis.py [--output FOLDER] [--record] [PROGRAM ...]

Each program runs under `gpuprof run` as it is found, and once more without gpuprof and with
`--fixed`; on several GPUs also those of several processes, under torchrun on two. Compared are the
first finding with expected.toml, and the step that it promises with the step of the fixed program,
by that program's own clock: within 15 %, or within a range of which the advice says why it is not
narrower. With `--record` the fixed programs do not run: the captures are what is wanted. Exits 1
where one differs.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Of the fixed program's step: what the promised one may differ.
TOLERANCE = 0.15
NOTHING: dict[str, Any] = {
    **{"finding": "none", "gain_ns": 0, "gain_range_ns": [0, 0]},
    **{"evidence": "", "uncertain": "", "places": []},
}
EXAMPLES = Path(__file__).parents[2] / "examples" / "diagnosis"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((EXAMPLES / "expected.toml").read_text())


def in_processes(name: str) -> bool:
    """Whether the program is of several processes."""
    return "processes" in EXPECTED[name]["devices"]


def launcher(name: str) -> list[str]:
    """What runs the program."""
    if not in_processes(name):
        return [sys.executable]
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]


def own_ms(name: str, *arguments: str) -> float:
    """One step by the program's own clock, without gpuprof."""
    command = [*launcher(name), str(EXAMPLES / f"{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["step_ms"])


def analysed(name: str, folder: Path) -> dict[str, Any]:
    """The analysis of the program as it is found; what gpuprof printed is kept in `folder`."""
    capture = folder / f"{name}.gpuprof"
    # A rank that stopped would leave the other one waiting.
    options = ["-f", *([] if in_processes(name) else ["--stop-after"]), "-o", str(capture)]
    command = [*launcher(name), "-m", "gpuprof", "run", *options, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    (folder / f"{name}.txt").write_text(done.stderr)
    if done.returncode:
        raise RuntimeError(done.stderr[-800:])
    analysis: dict[str, Any] = json.loads((capture / "analysis.json").read_bytes())
    return analysis


def marked_line(name: str) -> int | None:
    """The line of the program that the finding must name."""
    lines = (EXAMPLES / f"{name}.py").read_text().splitlines()
    found = [number for number, line in enumerate(lines, 1) if line.endswith("# expected here")]
    return found[0] if found else None


def main() -> int:
    """Run the programs, print a table, and say whether all agree."""
    several = torch.cuda.device_count() > 1
    on_gpu = [
        name
        for name, row in EXPECTED.items()
        if "gpu" in row["devices"] or (several and in_processes(name))
    ]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", choices=[[], *on_gpu], metavar="PROGRAM")
    parser.add_argument("--output", type=Path, default=Path("diagnosis"))
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for name in options.programs or on_gpu:
        row = EXPECTED[name]
        try:
            analysis = analysed(name, options.output)
            step_ms = analysis["steps"]["median_ns"] / 1e6
            compares = row.get("fixed") and not options.record
            fixed_ms = own_ms(name, "--fixed") if compares else None
        except (RuntimeError, subprocess.SubprocessError) as error:
            print(f"{name:26s} failed: {error}", flush=True)
            wrong += 1
            continue
        advice = analysis["advice"]
        first = advice[0] if advice else NOTHING
        places = " ".join(place["place"] for place in first["places"])
        named = not row.get("line") or f"{name}.py:{marked_line(name)}" in places
        right = first["finding"] in row["finding"] and analysis["binds"]["kind"] in row.get(
            "binds", [analysis["binds"]["kind"]]
        )
        # The fix is that of the first finding that is expected; another one promises another step.
        applied = [each for each in advice if each["finding"] == row["finding"][0]] or [first]
        promised_ms = step_ms - applied[0]["gain_ns"] / 1e6
        off = None if fixed_ms is None else promised_ms / fixed_ms - 1
        shortest_ms, longest_ms = (
            step_ms - gain_ns / 1e6 for gain_ns in reversed(applied[0]["gain_range_ns"])
        )
        close = off is None or abs(off) <= TOLERANCE
        if fixed_ms is not None and applied[0]["uncertain"]:
            close = close or shortest_ms <= fixed_ms <= longest_ms
        wrong += not (right and named and close)
        print(
            f"{name:26s} {'right' if right else 'WRONG'} {'line' if named else 'NO LINE':8s}",
            f"{first['finding']:20s} of {analysis['bottleneck']['kind']:16s}",
            f"step {step_ms:9.3f} promised {promised_ms:9.3f}",
            f"[{shortest_ms:.3f} to {longest_ms:.3f}]",
            "" if off is None else f"fixed {fixed_ms:9.3f} {off:+.0%}{'' if close else ' FAR'}",
            first["evidence"][:120],
            flush=True,
        )
    print(f"{wrong} of {len(options.programs or on_gpu)} differ")
    return 1 if wrong and not options.record else 0


if __name__ == "__main__":
    sys.exit(main())
