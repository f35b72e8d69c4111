"""What a capture holds of one operator or kernel beside the figures of its row."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Final

import polars as pl

from gpuprof.collectors.call_tree.nesting import Integers
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import Device
from gpuprof.roofline.analysis import RooflinePoint
from gpuprof.roofline.checklist.find import CountedKernels
from gpuprof.roofline.cost_models.call import OpCall, parse_call
from gpuprof.roofline.explain import attention, convolution
from gpuprof.roofline.explain.callers import callers_of
from gpuprof.roofline.explain.counters import counters_of
from gpuprof.roofline.explain.launches import kernels_of, spread_of
from gpuprof.roofline.explain.product import product_dispatch
from gpuprof.roofline.explanation_figures import (
    Dispatch,
    ExplainedKernel,
    TimeSpread,
    Unknown,
    WorkLayers,
)
from gpuprof.roofline.points.points import COPY_NAME, NO_OP
from gpuprof.roofline.work.attribution import of_operators, parent_rows, rows_of
from gpuprof.roofline.work.places import ProgramPlace
from gpuprof.roofline.work.work import Work

_RECORD_SHAPES: Final = "record_shapes=True of torch.profiler; gpuprof run records them"
_CONVOLUTIONS: Final = ("aten::convolution", "aten::_convolution", "aten::conv2d")
# Around what torch.compile compiled, forward and backward.
_COMPILED: Final = ("Torch-Compiled Region", "CompiledFunction")
# An operator, and its call where its arguments were recorded.
_Called = tuple[str, OpCall | None]


class LayerReader:
    """Reads the layers of operators and kernels of one attributed rank."""

    def __init__(self, capture: Capture, work: Work, device: Device | None) -> None:
        self._capture = capture
        self._work = work
        self._device = device

    def layers_of(self, point: RooflinePoint) -> WorkLayers:
        """Those of `point`, which is a row of operators or kernels of the analysis."""
        rows = _rows(self._work, point)
        chain = self._chain(rows)
        above = None if point.roof_fraction is None else max(0.0, 1 - point.roof_fraction)
        kernels = kernels_of(rows, self._device, self._counted, above)
        counters, further = counters_of(self._capture, rows["kernel_row"])
        module, line = _origin(self._capture, rows)
        return WorkLayers(
            module=module,
            line=line,
            callers=callers_of(rows, self._capture.ops),
            called_by=tuple(name for name, _ in chain),
            dispatch=_dispatch(chain, kernels, self._device),
            kernels=kernels,
            time=_time(rows, point),
            counters=counters,
            further_counters=further,
            unknown=(
                *self._unknown_origin(point, rows, chain, (module, line)),
                *self._unknown_launch(rows, counted=bool(counters)),
            ),
        )

    @cached_property
    def _counted(self) -> CountedKernels:
        return CountedKernels(self._capture)

    @cached_property
    def _parents(self) -> Integers:
        """For each row of the table ops that of its parent, -1 for none."""
        return parent_rows(self._capture)

    def _chain(self, rows: pl.DataFrame) -> list[_Called]:
        """The operators around the first call and itself, the outermost first."""
        launching = rows["op_id"].drop_nulls().head(1)
        if launching.is_empty() or self._capture.ops.is_empty():
            return []
        (row,) = rows_of(self._capture.ops, launching)
        chain = []
        while row >= 0:
            found = self._capture.ops.row(int(row), named=True)
            chain.append((found["name"], _call(found)))
            row = self._parents[row]
        return chain[::-1]

    def _unknown_origin(
        self,
        point: RooflinePoint,
        rows: pl.DataFrame,
        chain: Sequence[_Called],
        origin: tuple[str, str],
    ) -> list[Unknown]:
        """What this capture does not say of where the work comes from, and what would.

        `origin` are the module and the line.
        """
        module, line = origin
        operator = point.name if point.level == "op" else point.op
        if not operator or operator == NO_OP or self._capture.ops.is_empty():
            return [Unknown("operator", _operator_told_by(self._capture, rows))]
        found = []
        if not (point.detail if point.level == "op" else point.op_detail):
            found.append(Unknown("shapes", _RECORD_SHAPES))
        missing = [what for what, known in (("module", module), ("line", line)) if not known]
        if missing:
            told = "gpuprof run, which watches the program's modules and lines"
            found.append(Unknown(" and ".join(missing), told))
        elif _is_compiled(chain) and not point.fused:
            told = "gpuprof run --stacks, which takes no compiled graph from torch's cache"
            found.append(Unknown("line within the compiled function", told))
        return found

    def _unknown_launch(self, rows: pl.DataFrame, *, counted: bool) -> list[Unknown]:
        """What this capture does not say of how kernels were launched and ran, and what would."""
        device, found = self._device, []
        if rows.is_empty() or (device is not None and device.kind == "cpu"):
            return []
        if rows["grid_x"].null_count() == rows.height:
            found.append(Unknown("launch", "a trace of PyTorch's profiler, nsys or ncu"))
        if device is not None and device.kind == "hip":
            found.append(Unknown("occupancy", "tools of AMD: traces of torch lack the registers"))
        elif rows["registers"].null_count() == rows.height:
            found.append(Unknown("occupancy", "a trace of PyTorch's profiler, nsys or ncu"))
        elif device is None or device.compute_capability is None:
            told = "a trace that names the device and its compute capability"
            found.append(Unknown("occupancy", told))
        if not counted and device is not None and device.kind == "cuda":
            found.append(Unknown("counters", "gpuprof run --counters, or ncu's report beside this"))
        return found


def _is_compiled(chain: Sequence[_Called]) -> bool:
    """Whether operators are of a graph of torch.compile's."""
    inside = [name for name, _ in chain[:-1]]
    return any(name.startswith(_COMPILED) for name in inside)


def _rows(work: Work, point: RooflinePoint) -> pl.DataFrame:
    """The device work of `point`."""
    of_operator = point.level == "op"
    operator, detail = (point.name, point.detail) if of_operator else (point.op, point.op_detail)
    alike = [pl.col("phase") == point.phase]
    is_nobodys = of_operator and operator == NO_OP
    if operator and not is_nobodys:
        same = [
            index
            for index, signature in enumerate(work.signatures)
            if (signature.name, signature.detail) == (operator, detail)
        ]
        alike.append(pl.col("signature").is_in(same))
    else:
        alike.append(pl.col("signature").is_null())
    if not of_operator:
        alike += [pl.col("name") == point.name, pl.col("kind") == point.kind]
    here = work.places.number_of(ProgramPlace(point.module, point.source, point.fused))
    if of_operator and here is not None:
        alike.append(pl.col("place") == here)
    # A few of all, which are quicker to take than the others are to leave.
    rows = work.kernels.select(pl.all_horizontal(alike)).to_series().arg_true()
    kernels = work.kernels[rows].with_columns(COPY_NAME)
    if is_nobodys:
        kernels = kernels.filter(pl.col("copy_name") == detail)
    # What differs in strides or in being replayed alone has a row of its own in the analysis.
    for _, one in kernels.group_by("signature", "copy_name", maintain_order=True):
        if one["duration_ns"].sum() == point.device_ns:
            return one
    return kernels


def _call(row: dict[str, Any]) -> OpCall | None:
    return parse_call(
        row["name"],
        row["input_dims"],
        row["input_types"],
        row["input_strides"],
        row["concrete_inputs"],
    )


def _dispatch(
    chain: Sequence[tuple[str, OpCall | None]],
    kernels: Sequence[ExplainedKernel],
    device: Device | None,
) -> Dispatch | None:
    names = [name for name, _ in chain]
    calls = dict(chain)
    capability = None if device is None else device.compute_capability
    if any(name.startswith("aten::") and "attention" in name for name in names):
        return attention.attention_dispatch(calls.get(attention.OPERATOR), names, capability)
    decoded = [each.decoded for each in kernels if each.decoded is not None]
    call = next((calls[name] for name in _CONVOLUTIONS if name in calls), None)
    found = convolution.convolution_dispatch(call, names, [each.operation for each in decoded])
    if found is None and chain:
        found = product_dispatch(*chain[-1], decoded, capability)
    return found


def _time(kernels: pl.DataFrame, point: RooflinePoint) -> TimeSpread | None:
    kernels = kernels.drop_nulls("duration_ns")
    if kernels.is_empty():
        return None
    if point.level == "op" and kernels["owner_id"].is_not_null().all():
        return spread_of(
            kernels.group_by("owner_id").agg(pl.col("duration_ns").sum())["duration_ns"]
        )
    return spread_of(kernels["duration_ns"])


def _origin(capture: Capture, kernels: pl.DataFrame) -> tuple[str, str]:
    """The module and the line of the operators; where they have several, most of them and so said.

    "" where they are not known.
    """
    ids = kernels["op_id"].drop_nulls()
    own = of_operators(capture.ops, ids.unique(), "module", "file", "line", "function")
    lines = (
        f"{file}:{line or '?'}{f' in {function}' if function else ''}"
        for file, line, function in own.select("file", "line", "function").iter_rows()
        if file is not None
    )
    return _most(own["module"].drop_nulls()), _most(lines)


def _most(texts: Iterable[str]) -> str:
    counts = Counter(texts)
    if not counts:
        return ""
    text, _ = min(counts.items(), key=lambda item: (-item[1], item[0]))
    others = len(counts) - 1
    return f"{text} and {others} other{'s' if others > 1 else ''}" if others else text


def _operator_told_by(capture: Capture, kernels: pl.DataFrame) -> str:
    if kernels["replay"].is_not_null().any():
        return "a trace of the graph's capture, or of the same work without graphs, given beside it"
    if capture.ops.is_empty():
        return "a trace with operators: gpuprof run, or ProfilerActivity.CPU of torch.profiler"
    return (
        "nothing here: it was launched outside of any operator, as kernels of other libraries are"
    )
