"""What carries a step's change, the largest cause first."""

from typing import Literal

import msgspec

from gpuprof.roofline.comparison.kernel_changes import KernelChange, is_hideable
from gpuprof.roofline.comparison.result import Comparison

CauseKind = Literal["kernel", "communication", "copies", "waiting", "unexplained"]


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One cause: a kernel, or a part of the step that no kernel fills."""

    kind: CauseKind
    # The kernel's name, "before -> after" where it was renamed; else the part in words.
    name: str
    # Of one step; positive is slower.
    change_ns: float
    # Of the step's change; None where that is 0. Over 1 where others make up for it.
    share: float | None
    # For a kernel.
    kernel: KernelChange | None = None


def causes(comparison: Comparison) -> tuple[Cause, ...]:
    """All causes, those that pull the step the way it went first, each kind by size.

    Communication and copies count by what of them is exposed, where that is known, and not by
    their kernels. Empty where there is no step to explain.
    """
    step = comparison.step
    if step is None:
        return ()
    change_ns = step.change_ns

    def cause(
        kind: CauseKind, name: str, part_ns: float, kernel: KernelChange | None = None
    ) -> Cause:
        share = part_ns / change_ns if change_ns else None
        return Cause(kind=kind, name=name, change_ns=part_ns, share=share, kernel=kernel)

    exposed_known = step.communication_ns is not None
    found = [
        cause("kernel", kernel.name, kernel.change_ns, kernel)
        for kernel in comparison.kernels
        if not (exposed_known and is_hideable(kernel))
    ]
    parts: tuple[tuple[CauseKind, str, float | None], ...] = (
        ("communication", "exposed communication", step.communication_ns),
        ("copies", "exposed copies", step.copies_ns),
        ("waiting", step.idle_name, step.idle_ns),
        ("unexplained", "unexplained", step.unexplained_ns),
    )
    found += [cause(kind, name, part) for kind, name, part in parts if part is not None]
    direction = 1 if change_ns >= 0 else -1
    return tuple(sorted(found, key=lambda one: (-direction * one.change_ns, one.name)))
