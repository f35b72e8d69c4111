"""A capture as a Chrome trace, in the layout of the PyTorch profiler: Perfetto opens it.

What Kineto writes has Kineto's categories and keys, so that gpuprof and other readers of its traces
read it back; what the analysis adds stands in `args`. Times are microseconds after
`baseTimeNanoseconds`, as decimals of whole nanoseconds.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import msgspec
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.reports.chrome.header import base_ns, known, process_fields
from gpuprof.reports.chrome.rows import crossing, device_offset, kernel_rows
from gpuprof.roofline import dtypes
from gpuprof.roofline.analysis import Analysis, RooflinePoint
from gpuprof.roofline.points.kernel_verdicts import kernel_verdicts
from gpuprof.roofline.work.attribution import launch_of_kernels

ChromeEvent = dict[str, Any]

# Rows turned into Python objects at a time.
_SLICE_ROWS: Final = 2_000
# Beside the threads, whose numbers are the operating system's.
_STEPS_ROW: Final = 0
_DEVICE_SORT_INDEX: Final = 5_000_000
# Readers of Kineto traces skip these categories: shown by a viewer, not part of the recording.
_SHOWN_ONLY: Final = "Trace"
_COUNTER: Final = "hardware_counters"
_FLOW: Final = "ac2g"
_KERNEL_CATEGORIES: Final = {"memcpy": "gpu_memcpy", "memset": "gpu_memset"}
_KERNEL_ARGS: Final = {
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
}
_OP_ARGS: Final = {
    "op_id": "External id",
    "sequence": "Sequence number",
    "forward_thread": "Fwd thread id",
    "module": "module",
    "recompute": "recompute",
}
_OP_LISTS: Final = {
    "input_dims": "Input Dims",
    "input_types": "Input type",
    "input_strides": "Input Strides",
    "concrete_inputs": "Concrete Inputs",
}
# Column of samples -> name of its track, name of its value.
_COUNTERS: Final = {
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
    "tensor_active_percent": ("Tensor cores active", "%"),
    "dram_active_percent": ("DRAM active", "%"),
}
_ENCODER: Final = msgspec.json.Encoder()


def chrome_trace(capture: Capture, analysis: Analysis) -> Iterator[bytes]:
    """The text of the trace of an attributed one-rank capture with this analysis, in pieces.

    Each event stands on a line of its own. Memory does not grow with the number of events beyond
    a few numbers for each piece of device work.
    """
    writer = _Writer(capture, analysis)
    yield writer.header()
    separator = b"\n"
    for events in writer.slices():
        lines = b",\n".join(map(_ENCODER.encode, events))
        if lines:
            yield separator + lines
            separator = b",\n"
    yield b"\n]}\n"


class _Writer:
    def __init__(self, capture: Capture, analysis: Analysis) -> None:
        self._capture = capture
        self._analysis = analysis
        (self._info,) = capture.processes
        self._base_ns = base_ns(capture)
        processes = pl.concat(
            [capture.table(name)["process"] for name in ("ops", "launches", "ranges")]
        ).drop_nulls()
        self._process: int = (
            int(processes.mode().min() or 0)  # type: ignore[arg-type]
            if self._info.process is None
            else self._info.process
        )
        self._processes = processes.unique().append(pl.Series([self._process])).unique().sort()
        devices = pl.concat(
            [capture.kernels["device"].fill_null(0), capture.samples["device"].fill_null(0)]
        ).unique()
        self._devices = devices.sort()
        self._offset = device_offset(self._processes, devices.cast(pl.Int64))
        self._is_cpu_run = bool((capture.kernels["kind"] == "op").any())
        self._verdicts = kernel_verdicts(capture, analysis)
        self._kernels = capture.kernels.with_columns(self._verdicts.of_kernel)

    def header(self) -> bytes:
        """The text up to and with the bracket that opens the events."""
        fields = {
            "schemaVersion": 1,
            **process_fields(self._info),
            "baseTimeNanoseconds": self._base_ns,
            "displayTimeUnit": "ms",
            "traceName": self._capture.manifest.title,
        }
        text = b",\n".join(
            _ENCODER.encode(key) + b": " + _ENCODER.encode(value) for key, value in fields.items()
        )
        return b"{" + text + b',\n"traceEvents": ['

    def slices(self) -> Iterator[Iterable[ChromeEvent]]:
        """The events, some thousand at a time.

        Flow arrows begin inside the launches, which therefore stand before them.
        """
        yield self._names()
        yield from _mapped(self._capture.steps, self._step)
        yield from _mapped(self._ops(), self._op)
        yield from _mapped(self._ranges(), self._range)
        yield from _mapped(self._capture.launches, self._launch)
        if not self._is_cpu_run:
            yield from self._device_work()
        yield from _mapped(self._allocations(), self._allocation)
        yield from _mapped(self._capture.samples, self._sample)

    def _names(self) -> Iterator[ChromeEvent]:
        for process in self._processes:
            yield _metadata(process, "process_name", name=f"process {process}")
            yield _metadata(process, "process_labels", labels="CPU")
        if self._capture.steps.height:
            yield _metadata(self._process, "thread_name", _STEPS_ROW, name="steps")
            yield _metadata(self._process, "thread_sort_index", _STEPS_ROW, sort_index=-1)
        if self._is_cpu_run and self._capture.samples.is_empty():
            return
        names = {device.index: device.name for device in self._info.fingerprint.devices}
        for device in self._devices:
            row = self._offset + device
            name = names.get(device, "")
            yield _metadata(row, "process_name", name=f"GPU {device} {name}".rstrip())
            yield _metadata(row, "process_labels", labels=f"GPU {device}")
            yield _metadata(row, "process_sort_index", sort_index=_DEVICE_SORT_INDEX + device)

    def _step(self, row: ChromeEvent) -> Iterator[ChromeEvent]:
        if row["phase"] == "profiled":
            category, name = "user_annotation", f"ProfilerStep#{row['index']}"
        else:
            # Not to be taken for a profiled step when it is read back.
            category, name = _SHOWN_ONLY, f"{row['phase']} step {row['index']}"
        place = {**row, "name": name, "process": self._process, "thread": _STEPS_ROW}
        args = {key: row[key] for key in ("device_ns", "host_ns", "tokens", "found_by")}
        yield self._slice(category, place, args)

    def _ops(self) -> pl.DataFrame:
        """The operators; those of a CPU run are device work themselves and have its verdicts."""
        if not self._is_cpu_run:
            return self._capture.ops
        verdicts = self._kernels.select("op_id", "step", "point")
        return self._capture.ops.join(verdicts, on="op_id", how="left", maintain_order="left")

    def _op(self, row: ChromeEvent) -> Iterator[ChromeEvent]:
        args = {key: row[column] for column, key in _OP_ARGS.items()}
        for column, key in _OP_LISTS.items():
            args[key] = _json_text(row[column])
        if self._is_cpu_run:
            args.update({"step": row["step"]}, **self._verdict(row))
        yield self._slice("cpu_op", row, args)

    def _ranges(self) -> pl.DataFrame:
        ranges = self._capture.ranges
        return ranges.with_columns(crossing(ranges)).with_row_index("range")

    def _range(self, row: ChromeEvent) -> Iterator[ChromeEvent]:
        args = {key: row[key] for key in ("domain", "flops", "bytes")}
        if row["end_ns"] is not None and not row["crossing"]:
            yield self._slice("user_annotation", row, args)
            return
        # It cannot be a slice of its thread: it crosses another, or nobody saw its end.
        begin = self._event("b", _SHOWN_ONLY, row, row["start_ns"], known(args))
        yield {**begin, "id": row["range"]}
        if row["end_ns"] is not None:
            yield {**self._event("e", _SHOWN_ONLY, row, row["end_ns"]), "id": row["range"]}

    def _launch(self, row: ChromeEvent) -> Iterator[ChromeEvent]:
        of_driver = row["name"][:2] == "cu" and row["name"][2:3].isupper()
        category = "cuda_driver" if of_driver else "cuda_runtime"
        yield self._slice(category, row, {"correlation": row["correlation"]})

    def _device_work(self) -> Iterator[Iterable[ChromeEvent]]:
        rows, labels = kernel_rows(self._kernels)
        yield (
            _metadata(self._offset + device, "thread_name", row, name=label)
            for device, row, label in labels.iter_rows()
        )
        launches = launch_of_kernels(self._capture).select("thread", "launch_ns")
        names = self._capture.ops.select("op_id", op="name")
        placed = (
            self._kernels.with_columns(rows, *launches)
            .join(names, on="op_id", how="left", maintain_order="left")
            .with_row_index("flow")
        )
        yield from _mapped(placed, self._kernel)

    def _kernel(self, row: ChromeEvent) -> Iterator[ChromeEvent]:
        args = {key: row[column] for column, key in _KERNEL_ARGS.items()}
        for part in ("grid", "block"):
            size = [row[f"{part}_{axis}"] for axis in "xyz"]
            args[part] = None if None in size else size
        args.update(_message(row), **self._verdict(row))
        category = _KERNEL_CATEGORIES.get(row["kind"], "kernel")
        place = {**row, "process": self._offset + (row["device"] or 0), "thread": row["row"]}
        yield self._slice(category, place, args)
        if row["launch_ns"] is not None:
            arrow = {"id": row["flow"], "name": _FLOW}
            yield {**self._event("s", _FLOW, row, row["launch_ns"]), **arrow}
            yield {**self._event("f", _FLOW, place, row["start_ns"]), **arrow, "bp": "e"}

    def _verdict(self, row: ChromeEvent) -> ChromeEvent:
        if row["point"] is None:
            return {}
        point = self._verdicts.points[row["point"]]
        return _verdict(point, row["end_ns"] - row["start_ns"])

    def _allocations(self) -> pl.DataFrame:
        threads = self._capture.ops.select("op_id", "process", "thread")
        return self._capture.allocations.join(
            threads, on="op_id", how="left", maintain_order="left"
        ).with_columns(
            pl.col("process").fill_null(self._process),
            pl.col("thread").fill_null(_STEPS_ROW),
            name=pl.lit("[memory]"),
        )

    def _allocation(self, row: ChromeEvent) -> Iterator[ChromeEvent]:
        on_cpu = row["device"] is None
        args = {
            "Bytes": row["bytes"],
            "Total Allocated": row["total"],
            "Total Reserved": row["reserved"],
            "Addr": row["address"],
            # c10::DeviceType
            "Device Type": 0 if on_cpu else 1,
            "Device Id": -1 if on_cpu else row["device"],
        }
        event = self._event("i", "cpu_instant_event", row, row["time_ns"], known(args))
        yield {**event, "s": "t"}

    def _sample(self, row: ChromeEvent) -> Iterator[ChromeEvent]:
        place = {"process": self._offset + (row["device"] or 0), "thread": 0}
        for column, (track, unit) in _COUNTERS.items():
            if row[column] is not None:
                named = {**place, "name": track}
                yield self._event("C", _COUNTER, named, row["time_ns"], {unit: row[column]})

    def _slice(self, category: str, row: ChromeEvent, args: ChromeEvent) -> ChromeEvent:
        event = self._event("X", category, row, row["start_ns"], known(args))
        event["dur"] = _microseconds(row["end_ns"] - row["start_ns"])
        return event

    def _event(
        self,
        phase: str,
        category: str,
        row: ChromeEvent,
        time_ns: int,
        args: ChromeEvent | None = None,
    ) -> ChromeEvent:
        """An event named and placed as `row` says."""
        event: ChromeEvent = {
            "ph": phase,
            "cat": category,
            "name": row["name"],
            "pid": self._process if row["process"] is None else row["process"],
            "tid": _STEPS_ROW if row["thread"] is None else row["thread"],
            "ts": _microseconds(time_ns - self._base_ns),
        }
        if args:
            event["args"] = args
        return event


def _mapped(
    frame: pl.DataFrame, events_of: Callable[[ChromeEvent], Iterator[ChromeEvent]]
) -> Iterator[Iterable[ChromeEvent]]:
    for rows in frame.iter_slices(_SLICE_ROWS):
        yield chain.from_iterable(map(events_of, rows.iter_rows(named=True)))


def _metadata(process: int, what: str, thread: int = 0, **args: object) -> ChromeEvent:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "ts": 0, "args": args}


def _verdict(point: RooflinePoint, duration_ns: int) -> ChromeEvent:
    """What the analysis says of one launch of `point`."""
    each = {
        "flops": point.total_flops,
        "bytes_read": point.bytes_read,
        "bytes_written": point.bytes_written,
    }
    args: ChromeEvent = {
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


def _message(row: ChromeEvent) -> ChromeEvent:
    """A collective's buffer in elements, which is how Kineto gives its size."""
    dtype = dtypes.parse(row["dtype"] or "")
    if row["message_bytes"] is None or dtype is None:
        return {}
    elements = row["message_bytes"] * 8 // dtype.bits
    return {"In msg nelems": elements, "Out msg nelems": elements}


def _microseconds(time_ns: int) -> msgspec.Raw:
    """Nanoseconds as a decimal of microseconds, digit by digit: no float is involved."""
    whole, rest = divmod(abs(time_ns), 1000)
    return msgspec.Raw(b"%s%d.%03d" % (b"-" if time_ns < 0 else b"", whole, rest))


@lru_cache(maxsize=4096)
def _json_text(text: str | None) -> object:
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
