"""The energy of a step."""

import msgspec


class Energy(msgspec.Struct, frozen=True, kw_only=True):
    """Of one device in the timed steps; the device's alone, without host and cooling."""

    # The mean between the first and the last reading, which lie `seconds` apart.
    power_watts: float
    seconds: float
    # That power for as long as a step takes in the mean.
    joules_per_step: float
    # None where the program declares no tokens.
    joules_per_token: float | None = None
    # As a fraction: how late the two readings may be, over the time between them.
    uncertainty: float
