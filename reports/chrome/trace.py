"""A capture as a Chrome trace, in the layout of the PyTorch profiler: Perfetto opens it.

What Kineto writes has Kineto's categories and keys, so that gpuprof and other readers of its traces
read it back; what the analysis adds stands in `args`. Times are microseconds after
`baseTimeNanoseconds`, as decimals of whole nanoseconds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, count
from typing import Any, Final

import msgspec
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.reports.chrome.arguments import (
    COUNTERS,
    KERNEL_ARGS,
    OP_ARGS,
    OP_LISTS,
    json_text,
    message_args,
    verdict_args,
)
from gpuprof.reports.chrome.header import base_ns, known, process_fields
from gpuprof.reports.chrome.places import (
    RankPlaces,
    devices_of,
    host_processes,
    places_of_ranks,
)
from gpuprof.reports.chrome.rows import crossing, kernel_rows
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.points.kernel_verdicts import kernel_verdicts
from gpuprof.roofline.timeline.device import idle_events
from gpuprof.roofline.timeline.events import with_places
from gpuprof.roofline.timeline.host import module_rows
from gpuprof.roofline.timeline.idle import idle_pieces_of
from gpuprof.roofline.work.attribution import launch_of_kernels

ChromeEvent = dict[str, Any]

# Rows turned into Python objects at a time.
_SLICE_ROWS: Final = 2_000
# Beside the threads, whose numbers are the operating system's.
_STEPS_ROW: Final = 0
_DEVICE_SORT_INDEX: Final = 5_000_000
# Readers of Kineto traces skip these categories: shown by a viewer, not part of the recording.
_SHOWN_ONLY: Final = "gpuprof"
_COUNTER: Final = "hardware_counters"
_FLOW: Final = "ac2g"
_KERNEL_CATEGORIES: Final = {"memcpy": "gpu_memcpy", "memset": "gpu_memset"}
_ENCODER: Final = msgspec.json.Encoder()


def chrome_trace(ranks: Sequence[tuple[Capture, Analysis]]) -> Iterator[bytes]:
    """The text of the trace of these ranks, in pieces: attributed one-rank captures, analysed.

    Each event stands on a line of its own. Memory does not grow with the number of events beyond
    a few numbers for each piece of device work.
    """
    captures = [capture for capture, _ in ranks]
    places = places_of_ranks(captures, ranks[0][1])
    base = max(
        0,
        min(own.time_ns(base_ns(one)) for one, own in zip(captures, places, strict=True)),
    )
    yield _header(captures, base)
    separator = b"\n"
    for (capture, analysis), own in zip(ranks, places, strict=True):
        for events in _Writer(capture, analysis, own, base).slices():
            lines = b",\n".join(map(_ENCODER.encode, events))
            if lines:
                yield separator + lines
                separator = b",\n"
    yield b"\n]}\n"


def _header(captures: Sequence[Capture], base: int) -> bytes:
    """The text up to and with the bracket that opens the events."""
    own = process_fields(captures[0].processes[0])
    if len(captures) > 1:
        # It is of none of the ranks alone.
        own.pop("distributedInfo", None)
    fields = {
        "schemaVersion": 1,
        **own,
        "baseTimeNanoseconds": base,
        "displayTimeUnit": "ms",
        "traceName": captures[0].manifest.title,
    }
    text = b",\n".join(
        _ENCODER.encode(key) + b": " + _ENCODER.encode(value) for key, value in fields.items()
    )
    return b"{" + text + b',\n"traceEvents": ['


class _Writer:
    def __init__(
        self, capture: Capture, analysis: Analysis, places: RankPlaces, base_ns: int
    ) -> None:
        self._capture = capture
        self._analysis = analysis
        self._places = places
        self._base_ns = base_ns
        (self._info,) = capture.processes
        self._hosts = host_processes(capture)
        self._devices = devices_of(capture)
        self._is_cpu_run = bool((capture.kernels["kind"] == "op").any())
        self._verdicts = kernel_verdicts(capture, analysis)
        self._kernels = capture.kernels.with_columns(self._verdicts.of_kernel)
        threads = {
            thread
            for name in ("ops", "launches", "ranges")
            for thread in capture.table(name)["thread"].unique()
        }
        # For rows that no thread has.
        self._idle_row = 0
        self._free_rows = (row for row in count(_STEPS_ROW + 1) if row not in threads)

    def slices(self) -> Iterator[Iterable[ChromeEvent]]:
        """The events, some thousand at a time.

        Flow arrows begin inside the launches, which therefore stand before them.
        """
        yield self._names()
        yield from _mapped(self._capture.steps, self._step)
        yield from _mapped(self._ops(), self._op)
        yield from _mapped(self._ranges(), self._range)
        yield from _mapped(self._capture.launches, self._launch)
        yield from self._modules()
        if not self._is_cpu_run:
            yield from self._device_work()
        yield from self._idle()
        yield from _mapped(self._allocations(), self._allocation)
        yield from _mapped(self._capture.samples, self._sample)

    def _names(self) -> Iterator[ChromeEvent]:
        prefix = self._places.prefix
        for recorded in self._hosts.every:
            process = self._places.process(recorded)
            yield _metadata(process, "process_name", name=f"{prefix}process {recorded}")
            yield _metadata(process, "process_labels", labels="CPU")
        own = self._places.process(self._hosts.own)
        if self._capture.steps.height:
            yield _metadata(own, "thread_name", _STEPS_ROW, name="steps")
            yield _metadata(own, "thread_sort_index", _STEPS_ROW, sort_index=-1)
        if self._is_cpu_run and self._capture.samples.is_empty():
            return
        names = {device.index: device.name for device in self._info.fingerprint.devices}
        for device in self._devices:
            row = self._places.devices_from + device
            name = f"{prefix}GPU {device} {names.get(device, '')}".rstrip()
            yield _metadata(row, "process_name", name=name)
            yield _metadata(row, "process_labels", labels=f"GPU {device}")
            yield _metadata(row, "process_sort_index", sort_index=_DEVICE_SORT_INDEX + row)

    def _step(self, row: ChromeEvent) -> Iterator[ChromeEvent]:
        if row["phase"] == "profiled":
            category, name = "user_annotation", f"ProfilerStep#{row['index']}"
        else:
            # Not to be taken for a profiled step when it is read back.
            category, name = _SHOWN_ONLY, f"{row['phase']} step {row['index']}"
        place = {**row, "name": name, "process": self._hosts.own, "thread": _STEPS_ROW}
        args = {key: row[key] for key in ("device_ns", "host_ns", "tokens", "found_by")}
        yield self._slice(category, place, args)

    def _ops(self) -> pl.DataFrame:
        """The operators; those of a CPU run are device work themselves and have its verdicts."""
        if not self._is_cpu_run:
            return self._capture.ops
        verdicts = self._kernels.select("op_id", "step", "point").unique("op_id", keep="first")
        return self._capture.ops.join(verdicts, on="op_id", how="left", maintain_order="left")

    def _op(self, row: ChromeEvent) -> Iterator[ChromeEvent]:
        args = {key: row[column] for column, key in OP_ARGS.items()}
        for column, key in OP_LISTS.items():
            args[key] = json_text(row[column])
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
        number = self._places.ids_from + row["range"]
        yield {**begin, "id": number}
        if row["end_ns"] is not None:
            yield {**self._event("e", _SHOWN_ONLY, row, row["end_ns"]), "id": number}

    def _launch(self, row: ChromeEvent) -> Iterator[ChromeEvent]:
        of_driver = row["name"][:2] == "cu" and row["name"][2:3].isupper()
        category = "cuda_driver" if of_driver else "cuda_runtime"
        yield self._slice(category, row, {"correlation": self._correlation(row)})

    def _device_work(self) -> Iterator[Iterable[ChromeEvent]]:
        rows, labels = kernel_rows(self._kernels)
        yield (
            _metadata(self._places.devices_from + device, "thread_name", row, name=label)
            for device, row, label in labels.iter_rows()
        )
        launches = launch_of_kernels(self._capture).select("thread", "launch_ns")
        self._idle_row = int(labels["row"].max() or 0) + 1  # type: ignore[arg-type]
        names = with_places(self._capture.ops).select("op_id", "module", "place", op="name")
        placed = (
            self._kernels.with_columns(rows, *launches)
            .join(names, on="op_id", how="left", maintain_order="left")
            .with_row_index("flow")
        )
        yield from _mapped(placed, self._kernel)

    def _kernel(self, row: ChromeEvent) -> Iterator[ChromeEvent]:
        args = {key: row[column] for column, key in KERNEL_ARGS.items()}
        args["correlation"] = self._correlation(row)
        for part in ("grid", "block"):
            size = [row[f"{part}_{axis}"] for axis in "xyz"]
            args[part] = None if None in size else size
        args.update(message_args(row), **self._verdict(row))
        category = _KERNEL_CATEGORIES.get(row["kind"], "kernel")
        place = {**row, "pid": self._device(row), "thread": row["row"]}
        yield self._slice(category, place, args)
        if row["launch_ns"] is not None:
            arrow = {"id": self._places.ids_from + row["flow"], "name": _FLOW}
            yield {**self._event("s", _FLOW, row, row["launch_ns"]), **arrow}
            yield {**self._event("f", _FLOW, place, row["start_ns"]), **arrow, "bp": "e"}

    def _modules(self) -> Iterator[Iterable[ChromeEvent]]:
        """A row beside each thread that is in modules."""
        own = ("process", "thread")
        within = self._capture.ops.filter(pl.col("module").is_not_null().any().over(own))
        for (_, thread), ops in within.group_by(own, maintain_order=True):
            row = next(self._free_rows)
            pid = self._pid(ops.row(0, named=True))
            yield (_metadata(pid, "thread_name", row, name=f"modules of thread {thread}"),)
            for visits in module_rows(ops).values():
                placed = visits.with_columns(pid=pl.lit(pid), thread=pl.lit(row))
                yield from _mapped(placed, self._shown)

    def _idle(self) -> Iterator[Iterable[ChromeEvent]]:
        """Times without device work, on a row of the first device."""
        pieces = idle_pieces_of(self._capture, self._verdicts.work, self._analysis)
        if pieces is None or pieces.is_empty():
            return
        if self._is_cpu_run:
            pid, row = self._places.process(self._hosts.own), next(self._free_rows)
        else:
            pid, row = self._places.devices_from + int(self._devices[0]), self._idle_row
        yield (_metadata(pid, "thread_name", row, name="no device work"),)
        gaps = idle_events(pieces, self._capture.kernels).with_columns(
            pid=pl.lit(pid), thread=pl.lit(row), name=pl.format("{}: {}", "waits", "name")
        )
        yield from _mapped(gaps, self._shown)

    def _shown(self, row: ChromeEvent) -> Iterator[ChromeEvent]:
        args = {key: row[key] or None for key in ("waits", "operator", "place", "detail")}
        yield self._slice(_SHOWN_ONLY, row, args)

    def _device(self, row: ChromeEvent) -> int:
        return self._places.devices_from + (row["device"] or 0)

    def _correlation(self, row: ChromeEvent) -> int | None:
        own: int | None = row["correlation"]
        return None if own is None else self._places.ids_from + own

    def _pid(self, row: ChromeEvent) -> int:
        """The process number that an event has, or that of its process."""
        if "pid" in row:
            return int(row["pid"])
        recorded = row["process"]
        return self._places.process(self._hosts.own if recorded is None else recorded)

    def _verdict(self, row: ChromeEvent) -> ChromeEvent:
        if row["point"] is None:
            return {}
        point = self._verdicts.points[row["point"]]
        return verdict_args(point, row["end_ns"] - row["start_ns"])

    def _allocations(self) -> pl.DataFrame:
        threads = self._capture.ops.select("op_id", "process", "thread")
        return self._capture.allocations.join(
            threads, on="op_id", how="left", maintain_order="left"
        ).with_columns(
            pl.col("process").fill_null(self._hosts.own),
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
        place = {"pid": self._device(row), "thread": 0}
        for column, (track, unit) in COUNTERS.items():
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
            "pid": self._pid(row),
            "tid": _STEPS_ROW if row["thread"] is None else row["thread"],
            "ts": _microseconds(self._places.time_ns(time_ns) - self._base_ns),
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


def _microseconds(time_ns: int) -> msgspec.Raw:
    """Nanoseconds as a decimal of microseconds, digit by digit: no float is involved."""
    whole, rest = divmod(abs(time_ns), 1000)
    return msgspec.Raw(b"%s%d.%03d" % (b"-" if time_ns < 0 else b"", whole, rest))
