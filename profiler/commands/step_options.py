"""The options of commands that record steps of a program."""

import argparse
from typing import Final

from gpuprof.collectors.errors import CommandError

# The names of gpuprof.collectors.steps.sources, which imports torch; "script" is none of them.
STEP_KINDS: Final = ("explicit", "profiler", "range", "optimizer", "forward", "graph", "script")

PROFILED: Final = 3


def add_step_options(parser: argparse._ActionsContainer, *, warmup: str) -> None:
    """Add them; `warmup` says what it is where it is not given."""
    parser.add_argument(
        "--steps",
        choices=STEP_KINDS,
        help="where steps come from (default: the first of these that shows any)",
    )
    parser.add_argument(
        "--step-range", metavar="NAME", help="an NVTX range of this name begins each step"
    )
    parser.add_argument(
        "--warmup",
        type=_count,
        metavar="N",
        help=f"steps before anything is timed ({warmup})",
    )
    parser.add_argument(
        "--timed",
        type=_count,
        metavar="N",
        help="steps timed with no profiler attached (10, and until a GPU has done them for 0.3 s)",
    )
    parser.add_argument(
        "--profiled",
        type=_count,
        default=PROFILED,
        metavar="N",
        help=f"steps profiled after that ({PROFILED})",
    )


def add_no_arguments(parser: argparse._ActionsContainer) -> None:
    """Add the option that leaves the program's arguments out of what is stored."""
    parser.add_argument(
        "--no-arguments",
        action="store_true",
        help="keep none of the program's arguments; without it secrets are masked",
    )


def refuse_half_a_range(arguments: argparse.Namespace) -> None:
    """Raise `CommandError` for `--steps range` without a name, and a name with other steps."""
    if (arguments.steps == "range") != (arguments.step_range is not None):
        if arguments.steps is not None:
            raise CommandError("--steps range and --step-range NAME go together", exit_code=2)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of steps: 0, 1, 2, ...")
    return int(text)
