"""What was found of one thing that a profiler needs."""

from typing import Literal

import msgspec

State = Literal["yes", "partly", "no"]


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked for."""

    group: str
    name: str
    state: State
    finding: str
    # What to do where it is missing; "" where nothing is.
    remedy: str = ""
