"""Whether other programs had the core while steps were timed, by the scheduler's own count."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import polars as pl

# A step that waited for its core for more of its time was not the program's own.
TOLERATED_WAITING: Final = 0.02


def waiting_fraction(steps: "pl.DataFrame") -> float | None:
    """The share of the time of `steps` for which the thread that makes them waited for a core.

    None where the system did not count it. Threads that work for this one are not in it.
    """
    counted = steps.select("run_delay_ns", "host_ns").drop_nulls()
    total_ns = int(counted["host_ns"].sum())
    return int(counted["run_delay_ns"].sum()) / total_ns if total_ns else None


def is_much(fraction: float | None) -> bool:
    """Whether a `waiting_fraction` is worth a word."""
    return fraction is not None and fraction > TOLERATED_WAITING


def busy_machine(fraction: float | None) -> str | None:
    """A sentence where the `waiting_fraction` of the timed steps is much, else None."""
    if fraction is None or not is_much(fraction):
        return None
    return (
        f"the machine was busy: for {fraction:.0%} of the timed steps the program waited for a "
        "core that other programs had, which makes steps longer and more different than they are "
        "on a quiet machine"
    )
