"""What a metric may cost: relative to the base, absolute, or both."""

from typing import Literal

import msgspec

# What a broken budget is worth: "error" fails the gate, "warn" is only said.
BudgetLevel = Literal["warn", "error"]
# What a suite with undecided benchmarks is worth: "fail" fails the gate.
OnInconclusive = Literal["pass", "warn", "fail"]


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one metric of one benchmark. Absolute ones are in the metric's unit."""

    # How much worse than the base it may be, as a fraction; None is the gate's own fail_above.
    regress: float | None = None
    maximum: float | None = None
    minimum: float | None = None
    level: BudgetLevel = "error"

    def __post_init__(self) -> None:
        if self.regress is not None and not self.regress >= 0:
            raise ValueError("regress is not negative")
        if any(bound is not None and not bound > 0 for bound in (self.maximum, self.minimum)):
            raise ValueError("maximum and minimum are positive")
