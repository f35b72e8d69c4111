"""Which modules of the program changed: the device work of each, before and after."""

import msgspec

from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.module_figures import ModuleWork


class ModuleChange(msgspec.Struct, frozen=True, kw_only=True):
    """The device work of one module in one step, in nanoseconds.

    The changes of what modules do themselves add up to that of all device work.
    """

    # As in `ModuleWork`: "layers.*.attention"; "" for what no module called.
    path: str
    # With all modules in it; None where a side does not have it.
    base_ns: float | None
    head_ns: float | None
    # Of it, what no module inside it called.
    base_own_ns: float | None
    head_own_ns: float | None

    @property
    def change_ns(self) -> float:
        """Head minus base, with all modules in it."""
        return (self.head_ns or 0.0) - (self.base_ns or 0.0)

    @property
    def own_change_ns(self) -> float:
        """Head minus base, of what it does itself."""
        return (self.head_own_ns or 0.0) - (self.base_own_ns or 0.0)


def module_changes(base: Analysis, head: Analysis) -> tuple[ModuleChange, ...]:
    """The modules of both sides, the largest change of their own work first.

    Empty where a side does not know its modules.
    """
    if base.modules is None or head.modules is None:
        return ()
    before, after = _by_path(base), _by_path(head)
    steps = max(base.steps.profiled, 1), max(head.steps.profiled, 1)

    def change(path: str) -> ModuleChange:
        one, other = before.get(path), after.get(path)
        return ModuleChange(
            path=path,
            base_ns=None if one is None else one.device_ns / steps[0],
            head_ns=None if other is None else other.device_ns / steps[1],
            base_own_ns=None if one is None else one.own_ns / steps[0],
            head_own_ns=None if other is None else other.own_ns / steps[1],
        )

    found = [change(path) for path in {**before, **after}]
    return tuple(
        sorted(found, key=lambda one: (-abs(one.own_change_ns), -abs(one.change_ns), one.path))
    )


def _by_path(analysis: Analysis) -> dict[str, ModuleWork]:
    return {} if analysis.modules is None else {row.path: row for row in analysis.modules.rows}
