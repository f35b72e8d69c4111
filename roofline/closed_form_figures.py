"""Model FLOPs by formula, as an analysis holds them."""

import msgspec


class FlopDifference(msgspec.Struct, frozen=True):
    """One reason why a step's operators do other work than the closed form says."""

    reason: str
    # Of one step; negative where the operators do less.
    flops: int


class ClosedForm(msgspec.Struct, frozen=True, kw_only=True):
    """Model FLOPs of one step by formula, and how the count by operators differs from them.

    flops + the differences + unexplained == counted.
    """

    # "6 N D + 12 L H Q T D" (training) or "2 N D + 4 L H Q T D" (inference), D tokens a step.
    formula: str
    # All parameters that the formula was given.
    parameters: int
    tokens: int
    flops: int
    # Of flops, the part of attention.
    attention_flops: int
    # By operators: matmul FLOPs with attention in full, without what is computed a second time.
    counted: int
    differences: tuple[FlopDifference, ...] = ()
    unexplained: int = 0
