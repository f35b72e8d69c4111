"""Settings that cost, and what speaks for it: a part of an `Analysis`.

Frozen structs; unknown is None. Times are integer nanoseconds of one step.
"""

import msgspec


class CostlySetting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting that is in force, with the evidence that it costs."""

    # As in gpuprof.collectors.settings.
    name: str
    # "" where it is at its default.
    value: str = ""
    does: str
    remedy: str
    # One sentence with the figures that say so.
    evidence: str
    # The most that the remedy could gain; None where nothing bounds it.
    gain_ns: int | None = None
    # What it rests on, where it is given.
    assumption: str = ""
    # What was measured is not the program's own.
    falsifies: bool = False
    source: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What is set in a way that can cost."""

    # Those that falsify first, then by gain.
    costly: tuple[CostlySetting, ...] = ()
    # "NAME=value" of those that are set, and of which nothing here shows that they cost.
    harmless: tuple[str, ...] = ()
