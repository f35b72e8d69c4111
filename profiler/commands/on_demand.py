"""The options of `gpuprof run` for captures on demand."""

import argparse
from typing import TYPE_CHECKING, Final

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.amounts import amount, whole
from gpuprof.profiler.page_output import PAGE_SUFFIX
from gpuprof.profiler.run.on_demand.request_signals import DEFAULT, signal_number

if TYPE_CHECKING:
    from gpuprof.profiler.run.on_demand.plan import OnDemandPlan

# A program that is asked has been running.
WARMUP: Final = 1
_MOST_CAPTURES: Final = 8
_WAITING: Final = ("at_step", "slower_than_p95", "captures", "signal")
_NOT_WITH_WAIT: Final = ("stop_after", "watch", "counters", "nsys", "open", "force")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    group = parser.add_argument_group("captures on demand")
    group.add_argument(
        "--wait",
        action="store_true",
        help="run untouched until gpuprof snap, or a step, asks for a capture of the next steps",
    )
    group.add_argument(
        "--at-step",
        type=whole,
        action="append",
        metavar="N",
        help="with --wait: begin a capture with step N; may be repeated",
    )
    group.add_argument(
        "--slower-than-p95",
        type=amount,
        metavar="TIMES",
        help="with --wait: begin one after a step of over TIMES the P95 of the last 256, as 1.2",
    )
    group.add_argument(
        "--captures",
        type=whole,
        metavar="N",
        help=f"with --wait: keep the newest N captures ({_MOST_CAPTURES})",
    )
    group.add_argument(
        "--signal",
        type=_signal,
        metavar="NAME",
        help="with --wait: what gpuprof snap sends: USR1, USR2 or RTMIN+N (USR2)",
    )


def refuse_contradictions(arguments: argparse.Namespace) -> None:
    """Raise `CommandError` for options that do not go together."""
    if not arguments.wait:
        given = [name for name in _WAITING if getattr(arguments, name) is not None]
        if given:
            raise CommandError(f"{_option(given[0])} goes with --wait", exit_code=2)
        return
    given = [_option(name) for name in _NOT_WITH_WAIT if getattr(arguments, name)]
    if arguments.output is not None and arguments.output.suffix.lower() == PAGE_SUFFIX:
        given.append(f"-o {arguments.output}")
    if given:
        raise CommandError(
            f"--wait and {given[0]} do not go together: there is a capture, with a "
            "number in its name, for each request",
            exit_code=2,
        )


def plan_of(arguments: argparse.Namespace) -> "OnDemandPlan | None":
    """None without --wait. Raises `CommandError` under torchrun and the like."""
    if not arguments.wait:
        return None
    from gpuprof.profiler.run.on_demand.plan import OnDemandPlan
    from gpuprof.profiler.run.ranks import Ranks

    if not Ranks.from_environment().alone:
        raise CommandError(
            "--wait works for one process: ranks would not begin with the same step, and wait for "
            "each other; leave it out under torchrun and srun",
            exit_code=2,
        )
    return OnDemandPlan(
        signal=arguments.signal or DEFAULT.value,
        most_captures=arguments.captures or _MOST_CAPTURES,
        at_steps=tuple(arguments.at_step or ()),
        slower_than_p95=arguments.slower_than_p95,
    )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _signal(text: str) -> int:
    try:
        return signal_number(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
