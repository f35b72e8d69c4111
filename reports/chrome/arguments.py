"""What the events of a Chrome trace say in `args`, with Kineto's keys, and the analysis' own."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from gpuprof.roofline import dtypes
from gpuprof.roofline.analysis import RooflinePoint

KERNEL_ARGS: Final = {
    "device": "device",
    "context": "context",
    "stream": "stream",
    "correlation": "correlation",
    "registers": "registers per thread",
    "shared_memory": "shared memory",
    "bytes": "bytes",
    "graph_id": "graph id",
    "collective": "Collective name",
    "dtype": "dtype",
    "group": "Process Group Name",
    "group_size": "Group size",
    "sequence": "Seq",
    "step": "step",
    "op": "op",
    "module": "module",
    "place": "line",
}
OP_ARGS: Final = {
    "op_id": "External id",
    "sequence": "Sequence number",
    "forward_thread": "Fwd thread id",
    "module": "module",
    "recompute": "recompute",
}
OP_LISTS: Final = {
    "input_dims": "Input Dims",
    "input_types": "Input type",
    "input_strides": "Input Strides",
    "concrete_inputs": "Concrete Inputs",
}
# Column of samples -> name of its track, name of its value.
COUNTERS: Final = {
    "sm_clock_mhz": ("SM clock", "MHz"),
    "memory_clock_mhz": ("Memory clock", "MHz"),
    "power_milliwatts": ("Power", "mW"),
    "temperature_celsius": ("Temperature", "°C"),
    "throttle_reasons": ("Slow-down reasons", "bits"),
    "utilisation_percent": ("GPU utilisation", "%"),
    "memory_used_bytes": ("Memory used", "bytes"),
    "pcie_tx_bytes_per_s": ("PCIe sent", "bytes/s"),
    "pcie_rx_bytes_per_s": ("PCIe received", "bytes/s"),
    "nvlink_tx_bytes_per_s": ("NVLink sent", "bytes/s"),
    "nvlink_rx_bytes_per_s": ("NVLink received", "bytes/s"),
    "sm_active_percent": ("Multiprocessors active", "%"),
    "tensor_active_percent": ("Tensor cores active", "%"),
    "dram_active_percent": ("DRAM active", "%"),
}


def verdict_args(point: RooflinePoint, duration_ns: int) -> dict[str, Any]:
    """What the analysis says of one launch of `point`."""
    each = {
        "flops": point.total_flops,
        "bytes_read": point.bytes_read,
        "bytes_written": point.bytes_written,
    }
    args: dict[str, Any] = {
        key: None if total is None else total // point.calls for key, total in each.items()
    }
    args["arithmetic_intensity"] = _rounded(point.arithmetic_intensity)
    args["bottleneck"] = point.bottleneck.kind
    if point.roof_ns is not None:
        args["roof"] = point.roof
        if duration_ns > 0:
            args["roof_fraction"] = _rounded(point.roof_ns / point.calls / duration_ns)
    args["phase"] = point.phase or None
    return args


def message_args(row: Mapping[str, Any]) -> dict[str, Any]:
    """A collective's buffer in elements, which is how Kineto gives its size."""
    dtype = dtypes.parse(row["dtype"] or "")
    if row["message_bytes"] is None or dtype is None:
        return {}
    elements = row["message_bytes"] * 8 // dtype.bits
    return {"In msg nelems": elements, "Out msg nelems": elements}


@lru_cache(maxsize=4096)
def json_text(text: str | None) -> object:
    """A list that a table keeps as JSON text; as a plain string where it is no JSON."""
    if text is None:
        return None
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text
    return msgspec.Raw(text)


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
