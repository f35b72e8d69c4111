"""One training step of a Llama-2-7B block."""

import sys
from pathlib import Path

from loop import run

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
import self_timing

taken = []
self_timing.run = lambda step, steps: taken.append(step)
import llama_block  # noqa: E402, F401

run(taken[0])
