"""What kernels did by hardware counters, beside what the models of their operators say.

Counters are of launches and models of operator calls. A call is compared where all its kernels
were counted; kernels of other calls are shown with nothing to compare.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.manifest import Device
from gpuprof.roofline.cost_models.call import OpCall, parse_call
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.machine.ceilings import Unit
from gpuprof.roofline.machine.devices import find_spec
from gpuprof.roofline.measured.counters import ExecutedFlops, ExecutedWork, executed_by_kernel
from gpuprof.roofline.measured.difference_reasons import Differing, reasons
from gpuprof.roofline.measured_figures import (
    DifferenceReason,
    Measured,
    MeasuredFlops,
    MeasuredKernel,
    MeasuredWork,
)
from gpuprof.roofline.work.work import Work

_MEBIBYTE = 2**20
_LAUNCH = tuple(f"{part}_{axis}" for part in ("grid", "block") for axis in "xyz")
# Vector work in 16 bits and less is computed in this by torch's kernels.
_COMPUTED_IN = {"fp16": "fp32", "bf16": "fp32", "fp8": "fp32", "fp4": "fp32", "tf32": "fp32"}


def measured_work(capture: Capture, work: Work, device: Device | None) -> MeasuredWork | None:
    """The counted kernels of a one-rank capture; None where it has no counters."""
    if capture.counters.is_empty():
        return None
    counted = _counted(capture, work)
    capacity = l2_capacity(device)
    groups = [
        *_complete_calls(counted, capture, work, capacity),
        *_other_launches(counted, work, traced=not capture.ops.is_empty()),
    ]
    launches = work.kernels.filter(pl.col("kind").is_in(["kernel", "collective"])).height
    return MeasuredWork(
        launches=counted.frame.height,
        launches_in_trace=launches,
        kernels=tuple(sorted(groups, key=lambda one: (-one.device_ns, one.kernels, one.detail))),
        counting=capture.processes[0].counting,
    )


def l2_capacity(device: Device | None) -> int | None:
    """Bytes that the device's L2 holds, as it said or as the device table has it."""
    if device is None or device.l2_cache_bytes is not None:
        return None if device is None else device.l2_cache_bytes
    spec = find_spec(device).spec
    if spec is None or spec.l2_cache_mib is None:
        return None
    return spec.l2_cache_mib * _MEBIBYTE


@dataclass(frozen=True)
class _Counted:
    """Rows of `Work.kernels` with counters; `executed` is what each did, by kernel_row.

    ambiguous: the counters may be those of a launch of another operator. whole: all kernels of
    the row's operator call were counted, and are not ambiguous.
    """

    frame: pl.DataFrame
    executed: dict[int, ExecutedWork]

    def of(self, rows: Iterable[int]) -> list[ExecutedWork]:
        return [self.executed[row] for row in rows]


def _counted(capture: Capture, work: Work) -> _Counted:
    executed, unsure = executed_by_kernel(capture)
    # A cost that the counters tell is no model to compare them with.
    no_models = [number for number, one in enumerate(work.signatures) if one.counted]
    # Which launch it was matters where launches of the name and grid belong to several operators.
    several = pl.col("signature").n_unique().over("name", *_LAUNCH) > 1
    frame = work.kernels.with_columns(
        (pl.col("kernel_row").is_in(list(unsure)) & several).alias("ambiguous")
    ).filter(pl.col("kernel_row").is_in(list(executed)))
    calls = frame.group_by("owner_id").agg(
        ((pl.len() == pl.col("compute_kernels").first()) & ~pl.col("ambiguous").any()).alias(
            "whole"
        )
    )
    frame = frame.join(
        calls, on="owner_id", how="left", nulls_equal=True, maintain_order="left"
    ).with_columns(
        pl.col("whole") & pl.col("signature").is_not_null() & ~pl.col("signature").is_in(no_models)
    )
    return _Counted(frame, executed)


def _complete_calls(
    counted: _Counted, capture: Capture, work: Work, capacity: int | None
) -> list[MeasuredKernel]:
    calls = (
        counted.frame.filter("whole")
        .group_by("owner_id", "signature", "phase", maintain_order=True)
        .agg(
            pl.col("kernel_row"),
            pl.col("name").unique(maintain_order=True).alias("names"),
            # A kernel that is its own owner has no operator's call.
            pl.when(pl.col("owner_id") >= 0).then("owner_op_id").first(),
            pl.col("duration_ns").sum(),
        )
    )
    groups = calls.group_by("names", "signature", "phase", maintain_order=True).agg(
        pl.col("kernel_row").list.explode(),
        pl.len().alias("calls"),
        pl.col("owner_op_id").first(),
        pl.col("duration_ns").sum(),
    )
    found = []
    for row in groups.iter_rows(named=True):
        signature = work.signatures[row["signature"]]
        executed = mean_work(counted.of(row["kernel_row"]), row["calls"])
        kernels = tuple(row["names"])
        reason: tuple[DifferenceReason, ...] = ()
        if signature.cost is not None:
            call = _call(capture, row["owner_op_id"])
            launches = len(row["kernel_row"]) // row["calls"]
            reason = reasons(Differing(kernels, call, signature.cost, executed, capacity, launches))
        found.append(
            MeasuredKernel(
                kernels=kernels,
                op=signature.name,
                detail=signature.detail,
                phase=row["phase"],
                launches=len(row["kernel_row"]),
                calls=row["calls"],
                device_ns=row["duration_ns"],
                not_compared="" if signature.cost is not None else signature.reason,
                reasons=reason,
                **_figures(executed, signature.cost),
            )
        )
    return found


def _other_launches(counted: _Counted, work: Work, *, traced: bool) -> list[MeasuredKernel]:
    """Counted kernels whose operator's call was not counted whole, or that have no operator."""
    groups = (
        counted.frame.filter(~pl.col("whole"))
        .with_columns(replayed=pl.col("replay").is_not_null())
        .group_by("name", "signature", "phase", "ambiguous", "replayed", maintain_order=True)
        .agg(pl.col("kernel_row"), pl.col("duration_ns").sum(), pl.col("compute_kernels").max())
    )
    found = []
    for row in groups.iter_rows(named=True):
        signature = None if row["signature"] is None else work.signatures[row["signature"]]
        if signature is not None and signature.counted:
            signature = None
        if row["ambiguous"]:
            why = "launches of this name and grid differ in shape; it is unknown which it was"
        elif signature is not None:
            why = f"not all {row['compute_kernels']} kernels of its operator's call were counted"
        elif row["replayed"]:
            why = "a CUDA graph replayed it, and its operator is unknown"
        elif traced:
            why = "no operator launched it"
        else:
            why = "the trace has no operators; a trace of torch.profiler has"
        executed = counted.of(row["kernel_row"])
        if row["ambiguous"]:
            signature = None
        found.append(
            MeasuredKernel(
                kernels=(row["name"],),
                op=signature.name if signature else "",
                detail=signature.detail if signature else "",
                phase=row["phase"],
                launches=len(executed),
                calls=0,
                device_ns=row["duration_ns"],
                not_compared=why,
                **_figures(mean_work(executed, len(executed)), None),
            )
        )
    return found


def mean_work(executed: Sequence[ExecutedWork], calls: int) -> ExecutedWork:
    """What several launches did together, over `calls`; None where one of them was not counted."""

    def mean(counts: Iterable[int | None]) -> int | None:
        known = [count for count in counts if count is not None]
        return round(sum(known) / calls) if len(known) == len(executed) else None

    kinds = dict.fromkeys((part.unit, part.precision) for one in executed for part in one.flops)
    flops = []
    for unit, precision in kinds:
        count = mean(one.count(unit, precision) for one in executed)
        if count is not None:
            flops.append(ExecutedFlops(unit, precision, count))
    return ExecutedWork(
        flops=tuple(flops),
        dram_bytes_read=mean(one.dram_bytes_read for one in executed),
        dram_bytes_written=mean(one.dram_bytes_written for one in executed),
        dram_bytes=mean(one.dram_bytes for one in executed),
        l2_bytes=mean(one.l2_bytes for one in executed),
        l1_bytes=mean(one.l1_bytes for one in executed),
        duration_ns=mean(one.duration_ns for one in executed),
    )


def _figures(executed: ExecutedWork, cost: Cost | None) -> dict[str, Any]:
    """The fields of a `MeasuredKernel` that have numbers, of one call or, without, one launch."""
    return {
        "flops": compare_flops(executed, cost),
        "bytes_read": Measured(executed.dram_bytes_read, cost.bytes_read if cost else None),
        "bytes_written": Measured(
            executed.dram_bytes_written, cost.bytes_written if cost else None
        ),
        "l2_bytes": executed.l2_bytes,
        "l1_bytes": executed.l1_bytes,
    }


def compare_flops(executed: ExecutedWork, cost: Cost | None) -> tuple[MeasuredFlops, ...]:
    """Counted and modelled operations by unit and precision, where either is more than none.

    A product's model does not say which unit it runs on: it is compared with the tensor unit, or
    where that did nothing of its precision and the vector unit did, against the vector unit.
    """
    modelled: dict[tuple[Unit, str], int] | None = None
    if cost is not None and cost.flops is not None:
        modelled = {}
        for part in cost.flops:
            key: tuple[Unit, str] = ("vector", part.precision)
            if part.kind == "vector":
                key = ("vector", _COMPUTED_IN.get(part.precision, part.precision))
            elif executed.count("tensor", part.precision) or not executed.count(*key):
                key = ("tensor", part.precision)
            modelled[key] = modelled.get(key, 0) + part.count
    counts = {(part.unit, part.precision): part.count for part in executed.flops}
    return tuple(
        MeasuredFlops(
            unit=unit,
            precision=precision,
            measured=counts.get((unit, precision)),
            modelled=None if modelled is None else modelled.get((unit, precision), 0),
        )
        for unit, precision in sorted({**counts, **(modelled or {})})
        if counts.get((unit, precision)) or (modelled or {}).get((unit, precision))
    )


def _call(capture: Capture, op_id: int | None) -> OpCall | None:
    """The operator call as the trace recorded it; None where it did not, or for a kernel alone."""
    if op_id is None:
        return None
    columns = ("name", "input_dims", "input_types", "input_strides", "concrete_inputs")
    row = capture.ops.row(by_predicate=pl.col("op_id") == op_id, named=True)
    return parse_call(*(row[column] for column in columns))
