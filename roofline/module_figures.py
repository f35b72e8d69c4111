"""The device work of a program by its modules, and where in the program operators are called."""

import msgspec

from gpuprof.collectors.place_text import place_text
from gpuprof.roofline.classes import ClassName
from gpuprof.roofline.phase import Phase


class SourceLine(msgspec.Struct, frozen=True):
    """A place in the program's own files."""

    # Relative to the program's working directory where it lies below that.
    file: str
    # None where only the function is known.
    line: int | None
    function: str
    function_line: int

    @property
    def text(self) -> str:
        """ "train.py:42", "train.py" where only the function is known."""
        return place_text(self.file, self.line)


class FusedOperator(msgspec.Struct, frozen=True):
    """An operator of the program in a kernel that torch.compile generated."""

    # As the program's graph has it: aten::gelu.
    name: str
    # As in `gpuprof.roofline.analysis.RooflinePoint`.
    module: str = ""
    source: SourceLine | None = None


class PhaseTime(msgspec.Struct, frozen=True):
    """The part of some device time that belongs to one phase of the steps."""

    phase: Phase
    device_ns: int


class ModuleOperator(msgspec.Struct, frozen=True, kw_only=True):
    """What one operator that the program calls at one line did in one module."""

    # As the program calls it; "" where the calls came from several.
    name: str
    # The operators inside it that own device work, largest first, where they are others.
    inner: tuple[str, ...] = ()
    source: SourceLine | None = None
    # Of what torch.compile generated: what it is made of, of which `source` is the first line.
    fused: tuple[FusedOperator, ...] = ()
    # Over all profiled steps, as in `ModuleWork`.
    device_ns: int
    device_fraction: float
    phases: tuple[PhaseTime, ...] = ()
    # The class of most of its device time.
    kind: ClassName


class ModuleWork(msgspec.Struct, frozen=True, kw_only=True):
    """One module with all modules in it, summed over the profiled steps.

    Repeated ones are taken together: `layers.*` stands for layers.0, layers.1 and so on.
    """

    # "" for what no module called.
    path: str
    # How many rows of `ModuleTree.rows` it lies in.
    depth: int
    # How many modules of the program this stands for.
    instances: int = 1
    device_ns: int
    # Of device_ns, what no module inside it called.
    own_ns: int
    # device_ns over all device time of the profiled steps.
    device_fraction: float
    phases: tuple[PhaseTime, ...] = ()
    # Of what is known; with operators that are not counted these are lower bounds.
    flops: int
    bytes: int
    # The share of device_ns whose FLOPs and bytes are known.
    counted_fraction: float
    # The least time for its operators that have a roof over the time that these took; None where
    # none has.
    roof_fraction: float | None = None
    # The class of most of its device time.
    kind: ClassName
    # Called by the module itself, largest first.
    operators: tuple[ModuleOperator, ...] = ()


class ModuleTree(msgspec.Struct, frozen=True, kw_only=True):
    """Modules, each followed by those inside it, the largest first."""

    # Shares of the device time with a module, and with a line or function of the program.
    with_module: float
    with_line: float
    rows: tuple[ModuleWork, ...] = ()
