"""One operator or kernel through all layers."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.inheriting import inherit
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import Device
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.cost_models.call import OpCall, parse_call
from gpuprof.roofline.explain import attention, convolution
from gpuprof.roofline.explain.choosing import is_called
from gpuprof.roofline.explain.counters import counters_of
from gpuprof.roofline.explain.figures import (
    Dispatch,
    ExplainedKernel,
    LaunchConfiguration,
    TimeSpread,
    Unknown,
    WorkExplanation,
)
from gpuprof.roofline.kernel_names.decode import decode
from gpuprof.roofline.machine.occupancy import occupancy
from gpuprof.roofline.measured.counted_costs import counted_work
from gpuprof.roofline.points.points import COPY_NAME, NO_OP
from gpuprof.roofline.points.process_roofs import device_of
from gpuprof.roofline.work.attribution import attribute, rows_of
from gpuprof.roofline.work.math_mode import math_mode
from gpuprof.roofline.work.work import Work, find_work

_LAUNCH: Final = (
    *(f"{part}_{axis}" for part in ("grid", "block") for axis in "xyz"),
    "registers",
    "shared_memory",
)
_RECORD_SHAPES: Final = "record_shapes=True of torch.profiler; gpuprof run records them"
_CONVOLUTIONS: Final = ("aten::convolution", "aten::_convolution", "aten::conv2d")


def explain(capture: Capture, analysis: Analysis, point: RooflinePoint) -> WorkExplanation:
    """What `capture` holds of `point`, which is one of the operators or kernels of `analysis`."""
    capture = attribute(capture.rank(analysis.rank))
    process = capture.processes[0]
    device = device_of(process)
    work = find_work(capture, math_mode(device, process), None, counted_work(capture))
    kernels = _rows(work, point)
    chain = _chain(capture, kernels, point)
    explained = _kernels(kernels, device)
    operators = [name for name, _ in chain]
    dispatch = _dispatch(chain, explained, device)
    counters, further = counters_of(capture, kernels["kernel_row"])
    module, line = _origin(capture, kernels)
    return WorkExplanation(
        level="op" if point.level == "op" else "kernel",
        point=point,
        profiled_steps=analysis.steps.profiled,
        module=module,
        line=line,
        called_by=tuple(operators),
        dispatch=dispatch,
        kernels=explained,
        time=_time(kernels, point),
        counters=counters,
        further_counters=further,
        unknown=tuple(_unknown(capture, analysis, point, kernels, module, line, bool(counters))),
    )


def points_under(capture: Capture, analysis: Analysis, name: str) -> tuple[RooflinePoint, ...]:
    """The operators of `analysis` that operators called `name` call, the largest first.

    A composite operator such as aten::scaled_dot_product_attention has no work of its own. Only
    whole names count.
    """
    capture = attribute(capture.rank(analysis.rank))
    names = [each for each in capture.ops["name"].unique() if is_called(each, name)]
    if not names:
        return ()
    process = capture.processes[0]
    work = find_work(capture, math_mode(device_of(process), process), None, ())
    named = capture.ops["name"].is_in(names).to_numpy()
    under = inherit(named.astype(np.int8), rows_of(capture.ops, capture.ops["parent_id"])) > 0
    inside = capture.ops.filter(pl.Series(under))["op_id"]
    owned = work.kernels.filter(pl.col("op_id").is_in(inside.implode()))
    found = {
        (work.signatures[index].name, work.signatures[index].detail, phase)
        for index, phase in owned.select("signature", "phase").unique().drop_nulls().iter_rows()
    }
    return tuple(
        point for point in analysis.ops if (point.name, point.detail, point.phase) in found
    )


def _rows(work: Work, point: RooflinePoint) -> pl.DataFrame:
    """The device work of `point`."""
    of_operator = point.level == "op"
    operator, detail = (point.name, point.detail) if of_operator else (point.op, point.op_detail)
    kernels = work.kernels.with_columns(COPY_NAME).filter(pl.col("phase") == point.phase)
    if of_operator and operator == NO_OP:
        kernels = kernels.filter(pl.col("signature").is_null(), pl.col("copy_name") == detail)
    elif operator:
        same = [
            index
            for index, signature in enumerate(work.signatures)
            if (signature.name, signature.detail) == (operator, detail)
        ]
        kernels = kernels.filter(pl.col("signature").is_in(same))
    else:
        kernels = kernels.filter(pl.col("signature").is_null())
    if not of_operator:
        kernels = kernels.filter(pl.col("name") == point.name, pl.col("kind") == point.kind)
    # What differs in strides or in being replayed alone has a row of its own in the analysis.
    for _, one in kernels.group_by("signature", "copy_name", maintain_order=True):
        if one["duration_ns"].sum() == point.device_ns:
            return one
    return kernels


def _chain(
    capture: Capture, kernels: pl.DataFrame, point: RooflinePoint
) -> list[tuple[str, OpCall | None]]:
    """The operators around the first call and itself, the outermost first, with their arguments."""
    launching = kernels["op_id"].drop_nulls()
    if launching.is_empty() or capture.ops.is_empty():
        return []
    ops = capture.ops
    (row,) = rows_of(ops, launching.head(1))
    chain = []
    while row >= 0:
        found = ops.row(int(row), named=True)
        chain.append((found["name"], _call(found)))
        (row,) = rows_of(ops, pl.Series([found["parent_id"]], dtype=pl.Int64))
    return chain[::-1]


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
    if any(name.startswith("aten::") and "attention" in name for name in names):
        capability = None if device is None else device.compute_capability
        return attention.attention_dispatch(calls.get(attention.OPERATOR), names, capability)
    operations = [each.decoded.operation for each in kernels if each.decoded is not None]
    call = next((calls[name] for name in _CONVOLUTIONS if name in calls), None)
    return convolution.convolution_dispatch(call, names, operations)


def _kernels(kernels: pl.DataFrame, device: Device | None) -> tuple[ExplainedKernel, ...]:
    found = []
    for (name, kind, role), rows in kernels.group_by("name", "kind", "role", maintain_order=True):
        found.append(
            ExplainedKernel(
                name=str(name),
                kind=str(kind),
                role=str(role or ""),
                decoded=decode(str(name)) if kind in ("kernel", "collective") else None,
                launches=_launches(rows, device),
                time=_spread(rows["duration_ns"]),
            )
        )
    return tuple(sorted(found, key=lambda each: (-each.time.total_ns, each.name)))


def _launches(rows: pl.DataFrame, device: Device | None) -> tuple[LaunchConfiguration, ...]:
    groups = rows.group_by(_LAUNCH, maintain_order=True).len()
    shapes = [_launch(row, device) for row in groups.iter_rows(named=True)]
    known = [shape for shape in shapes if shape.grid is not None]
    return tuple(sorted(known, key=lambda shape: -shape.number))


def _launch(row: dict[str, Any], device: Device | None) -> LaunchConfiguration:
    grid, block = (_dimensions(row, part) for part in ("grid", "block"))
    registers, shared = row["registers"], row["shared_memory"]
    shape = LaunchConfiguration(
        number=row["len"],
        grid=grid,
        block=block,
        registers_per_thread=registers,
        shared_bytes=shared,
    )
    if device is None or grid is None or block is None or registers is None or shared is None:
        return shape
    held = occupancy(
        device.compute_capability,
        threads_per_block=math.prod(block),
        registers_per_thread=registers,
        shared_bytes=shared,
    )
    if held is None:
        return shape
    waves = None
    if device.multiprocessors:
        waves = held.waves(math.prod(grid), device.multiprocessors)
    return LaunchConfiguration(
        number=row["len"],
        grid=grid,
        block=block,
        registers_per_thread=registers,
        shared_bytes=shared,
        occupancy=held.fraction,
        blocks_per_multiprocessor=held.blocks,
        limited_by=held.limits,
        waves=waves,
    )


def _dimensions(row: dict[str, Any], part: str) -> tuple[int, int, int] | None:
    x, y, z = (row[f"{part}_{axis}"] for axis in "xyz")
    return None if None in (x, y, z) else (x, y, z)


def _time(kernels: pl.DataFrame, point: RooflinePoint) -> TimeSpread | None:
    if kernels.is_empty():
        return None
    if point.level == "op" and kernels["owner_id"].is_not_null().all():
        return _spread(kernels.group_by("owner_id").agg(pl.col("duration_ns").sum())["duration_ns"])
    return _spread(kernels["duration_ns"])


def _spread(durations: pl.Series) -> TimeSpread:
    values = durations.sort()
    quartiles = None
    if len(values) >= 4:
        low, high = (values.quantile(share, "nearest") for share in (0.25, 0.75))
        quartiles = (round(low or 0), round(high or 0))
    return TimeSpread(
        number=len(values),
        total_ns=int(values.sum()),
        minimum_ns=int(values[0]),
        median_ns=round(values.quantile(0.5, "midpoint") or 0),
        quartiles_ns=quartiles,
        maximum_ns=int(values[-1]),
    )


def _origin(capture: Capture, kernels: pl.DataFrame) -> tuple[str, str]:
    """The module and the line of the operators; where they have several, most of them and so said.

    "" where they are not known.
    """
    ids = kernels["op_id"].drop_nulls()
    own = capture.ops.filter(pl.col("op_id").is_in(ids.unique().implode()))
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


def _unknown(
    capture: Capture,
    analysis: Analysis,
    point: RooflinePoint,
    kernels: pl.DataFrame,
    module: str,
    line: str,
    counted: bool,
) -> list[Unknown]:
    """What this capture does not say of the work, and what would."""
    on_cpu = analysis.device is not None and analysis.device.kind == "cpu"
    operator = point.name if point.level == "op" else point.op
    found = []
    if not operator or operator == NO_OP or capture.ops.is_empty():
        found.append(Unknown("operator", _operator_told_by(capture, kernels)))
    else:
        if not (point.detail if point.level == "op" else point.op_detail):
            found.append(Unknown("shapes", _RECORD_SHAPES))
        missing = [what for what, known in (("module", module), ("line", line)) if not known]
        if missing:
            told = "gpuprof run, which watches the program's modules and lines"
            found.append(Unknown(" and ".join(missing), told))
    if not on_cpu and not kernels.is_empty():
        if kernels["grid_x"].null_count() == kernels.height:
            found.append(Unknown("launch", "a trace of PyTorch's profiler, nsys or ncu"))
        device = analysis.device
        if device is not None and device.kind == "hip":
            found.append(Unknown("occupancy", "tools of AMD: traces of torch lack the registers"))
        elif kernels["registers"].null_count() == kernels.height:
            found.append(Unknown("occupancy", "a trace of PyTorch's profiler, nsys or ncu"))
        elif device is None or device.compute_capability is None:
            told = "a trace that names the device and its compute capability"
            found.append(Unknown("occupancy", told))
        if not counted and device is not None and device.kind == "cuda":
            found.append(Unknown("counters", "gpuprof run --counters, or ncu's report beside this"))
    if point.roof_fraction is None and analysis.roof_source is None:
        found.append(Unknown("roof", "gpuprof calibrate on this device"))
    return found


def _operator_told_by(capture: Capture, kernels: pl.DataFrame) -> str:
    if kernels["replay"].is_not_null().any():
        return "a trace of the graph's capture, or of the same work without graphs, given beside it"
    if capture.ops.is_empty():
        return "a trace with operators: gpuprof run, or ProfilerActivity.CPU of torch.profiler"
    return (
        "nothing here: it was launched outside of any operator, as kernels of other libraries are"
    )
