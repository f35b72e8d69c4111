"""Do the scripts of `gpuprof repro` run?

    python scripts/check_repro.py [CAPTURE ...] [--most N] [--device cpu]

Writes a script for each of the N operators with most device time of each capture or trace (those of
tests/data, where none is given), for each kind of arguments that they had, and calls it once in a
process of its own. Prints a line for what did not run, and counts. Exits with 1 where a script
failed for another reason than that its operator is not of this device.
"""

import argparse
import contextlib
import io
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import torch

from gpuprof.collectors.errors import GpuprofError
from gpuprof.profiler.captures import read_capture_and_analysis
from gpuprof.profiler.repro.recorded import as_python
from gpuprof.profiler.repro.script import render_script
from gpuprof.roofline.cost_models.call import OpCall, Tensor, TensorList
from gpuprof.roofline.explain.calls import RecordedCalls, RepeatableCall

DATA = Path(__file__).parents[1] / "tests" / "data"
# More than these takes a CPU too long.
MOST_FLOPS, MOST_BYTES = 2e11, 2 << 30
PATIENCE_S = 60
# What torch says where an operator is of another device, or takes other types on it.
ELSEWHERE = ("Could not run", "not compiled", "CUDA", "cuDNN", "not implemented", "expected scalar")


def main() -> int:
    """Print what became of each, and how often."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("captures", nargs="*", type=Path)
    parser.add_argument("--most", type=int, default=40, metavar="N", help="operators of each (40)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    total: Counter[str] = Counter()
    for path in options.captures or sorted((DATA / "captures").iterdir()):
        counts = of_capture(path, options.most, options.device)
        print(f"{path.name}: {', '.join(f'{n} {what}' for what, n in counts.most_common())}")
        total += counts
    print(f"all: {', '.join(f'{n} {what}' for what, n in total.most_common())}")
    return int(bool(total["failed"]))


def of_capture(path: Path, most: int, device: str) -> Counter[str]:
    """What became of the scripts of one capture."""
    counts: Counter[str] = Counter()
    try:
        capture, analysis = read_capture_and_analysis(path, None)
    except GpuprofError as error:
        print(f"  {error}")
        return counts
    calls = RecordedCalls(capture, analysis)
    names = capture.ops["name"].unique(maintain_order=True)
    groups = {name: [each for each in calls.called(name) if each[0].name == name] for name in names}
    largest = sorted(groups, key=lambda name: -sum(one.device_ns for one, _ in groups[name]))
    for name in largest[:most]:
        for group in groups[name]:
            one = calls.read(*group)
            try:
                text = render_script(analysis, one, as_python(one))
            except GpuprofError as error:
                counts["refused"] += 1
                print(f"  refused: {error}")
                continue
            what, why = ("too large here", "") if is_too_large(one, device) else run(text, device)
            counts[what] += 1
            if what in ("failed", "of another device"):
                print(f"  {what}: {why}")
    return counts


def is_too_large(one: RepeatableCall, device: str) -> bool:
    """Whether a CPU would take too long."""
    flops = sum(part.count for part in one.flops or ())
    return device == "cpu" and (flops > MOST_FLOPS or bytes_of(one.call) > MOST_BYTES)


def bytes_of(call: OpCall | None) -> int:
    """Of all tensors among the arguments."""
    size = 0
    for argument in call.arguments if call else ():
        tensors = argument.tensors if isinstance(argument, TensorList) else (argument,)
        size += sum(each.bytes or 0 for each in tensors if isinstance(each, Tensor))
    return size


def run(text: str, device: str) -> tuple[str, str]:
    """Call the script's operator once, in a child: what came of it, and the last line it said."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        signal.alarm(PATIENCE_S)
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                sys.argv = ["script.py", "--once", "--device", device]
                exec(compile(text, "script.py", "exec"), {"__name__": "__main__"})
            line = ""
        except BaseException as error:
            line = str(error) or type(error).__name__
        os.write(writing, line.encode()[:4000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        line = stream.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    if status & 127 == signal.SIGALRM:
        return "too large here", ""
    if status:
        return "failed", f"ended by signal {status & 127}"
    if not line:
        return "ran", ""
    return ("of another device" if any(word in line for word in ELSEWHERE) else "failed"), line


if __name__ == "__main__":
    sys.exit(main())
