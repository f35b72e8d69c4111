"""What gpuprof or torch saw the host do in the profiled steps: garbage, compilations, batches."""

from collections.abc import Iterator
from typing import Final

import msgspec
import polars as pl

from gpuprof.collectors import host_events
from gpuprof.collectors.capture import Capture, once_a_capture
from gpuprof.collectors.host_events import GarbageCollection, LoaderStart, LoaderWorkers, NextBatch
from gpuprof.roofline.host.windows import begun_within, step_windows, union_within_ns
from gpuprof.roofline.host_figures import CollectedGarbage, LoaderCause, LoaderWait
from gpuprof.roofline.work.op_names import ops_matching

# torch/utils/data/dataloader.py: the range around each batch, by the class of the iterator.
_TORCH_BATCH: Final = r"^enumerate\(DataLoader\)#(\w+)\.__next__$"
_WITHOUT_WORKERS: Final = "_SingleProcessDataLoaderIter"


def collected_garbage(capture: Capture) -> CollectedGarbage | None:
    """Garbage collections of a one-rank capture; None where nobody counted them."""
    timed = capture.steps.filter(pl.col("phase") == "timed")["garbage_collection_ns"]
    known = len(timed) > 0 and timed.null_count() == 0
    collections, profiled_ns = [0, 0, 0], 0
    for event, span_ns in _events(capture, host_events.GARBAGE_COLLECTION):
        if isinstance(event, GarbageCollection):
            collections[event.generation] += 1
            profiled_ns += span_ns
    if not known and not capture.processes[0].garbage_collections:
        return None
    youngest, middle, oldest = collections
    return CollectedGarbage(
        timed_step_ns=round(timed.to_numpy().mean()) if known else None,
        collections=(youngest, middle, oldest),
        profiled_ns=profiled_ns,
    )


def compiling_ns(capture: Capture) -> int | None:
    """In which torch.compile compiled, in the profiled steps of a one-rank capture.

    None where no step was profiled, and where nobody watched: then 0 would say that it did not.
    """
    if capture.processes[0].compilations is None:
        return None
    rows = _rows(capture).filter(pl.col("name").str.starts_with(host_events.COMPILE))
    starts, ends = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    windows = step_windows(capture)
    return None if windows is None else union_within_ns(windows, starts, ends)


@once_a_capture
def loader_waits(capture: Capture) -> tuple[LoaderWait, ...]:
    """Waits for batches of DataLoaders in a one-rank capture, the longest first."""
    batches: dict[tuple[int, bool], list[tuple[NextBatch, int]]] = {}
    for event, span_ns in _events(capture, host_events.NEXT_BATCH):
        if isinstance(event, NextBatch):
            batches.setdefault((event.workers, event.pinned), []).append((event, span_ns))
    starts: dict[tuple[int, bool], list[int]] = {}
    for event, span_ns in _events(capture, host_events.LOADER_START):
        if isinstance(event, LoaderStart):
            starts.setdefault((event.workers, event.pinned), []).append(span_ns)
    if not batches and not starts:
        return _told_by_torch(capture)
    teams = [
        (event, span_ns)
        for event, span_ns in _events(capture, host_events.LOADER_WORKERS, in_steps=False)
        if isinstance(event, LoaderWorkers)
    ]
    found = []
    for workers, pinned in {**batches, **starts}:
        asked = batches.get((workers, pinned), [])
        wait_ns = sum(span_ns for _, span_ns in asked)
        loading: list[tuple[NextBatch | LoaderWorkers, int]] = [*asked]
        if workers:
            loading = [
                (team, workers * span_ns) for team, span_ns in teams if team.workers == workers
            ]
        one = _wait(workers, pinned, len(asked), wait_ns, loading)
        begun = starts.get((workers, pinned), [])
        found.append(msgspec.structs.replace(one, starts=len(begun), start_ns=sum(begun)))
    return tuple(sorted(found, key=lambda each: -each.wait_ns))


def _wait(
    workers: int,
    pinned: bool,
    batches: int,
    wait_ns: int,
    loading: list[tuple[NextBatch | LoaderWorkers, int]],
) -> LoaderWait:
    observed_ns = sum(span_ns for _, span_ns in loading)
    cpu_ns = _sum(each.cpu_ns for each, _ in loading)
    run_delay_ns = _sum(each.run_delay_ns for each, _ in loading)
    storage_bytes = _sum(each.storage_bytes for each, _ in loading)
    return LoaderWait(
        workers=workers,
        pinned=pinned,
        batches=batches,
        wait_ns=wait_ns,
        cause=_cause(observed_ns, cpu_ns, run_delay_ns, storage_bytes),
        observed_ns=observed_ns or None,
        loaded=_sum(each.batches if isinstance(each, LoaderWorkers) else 1 for each, _ in loading),
        cpu_ns=cpu_ns,
        run_delay_ns=run_delay_ns,
        read_bytes=_sum(each.read_bytes for each, _ in loading),
        storage_bytes=storage_bytes,
    )


def _cause(
    observed_ns: int, cpu_ns: int | None, run_delay_ns: int | None, storage_bytes: int | None
) -> LoaderCause:
    """What whoever loads did for most of the time."""
    if not observed_ns or cpu_ns is None or run_delay_ns is None:
        return "unknown"
    asleep_ns = observed_ns - cpu_ns - run_delay_ns
    if cpu_ns >= max(asleep_ns, run_delay_ns):
        return "transform"
    if run_delay_ns >= asleep_ns:
        return "core"
    return "reading" if storage_bytes else "waiting"


def _told_by_torch(capture: Capture) -> tuple[LoaderWait, ...]:
    """What a trace without counts tells: how long batches took, and of which iterator."""
    columns = ("name", "start_ns", "end_ns")
    # Until torch 1.8 they are operators.
    of_ops = capture.ops.select(columns).filter(pl.Series(ops_matching(capture, _TORCH_BATCH)))
    rows = (
        pl.concat([capture.ranges.select(columns), of_ops])
        .drop_nulls("end_ns")
        .with_columns(iterator=pl.col("name").str.extract(_TORCH_BATCH))
        .drop_nulls("iterator")
    )
    inside = begun_within(step_windows(capture), rows["start_ns"].to_numpy())
    rows = rows.filter(pl.Series(inside))
    found = [
        LoaderWait(
            workers=0 if iterator == _WITHOUT_WORKERS else None,
            pinned=None,
            batches=batches,
            wait_ns=wait_ns,
            cause="unknown",
        )
        for iterator, batches, wait_ns in rows.group_by("iterator", maintain_order=True)
        .agg(batches=pl.len(), wait_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
        .iter_rows()
    ]
    return tuple(sorted(found, key=lambda each: -each.wait_ns))


@once_a_capture
def _rows(capture: Capture) -> pl.DataFrame:
    return capture.ranges.filter(
        (pl.col("domain") == host_events.DOMAIN) & pl.col("host_event").is_not_null()
    )


def _events(
    capture: Capture, name: str, *, in_steps: bool = True
) -> Iterator[tuple[host_events.HostEvent, int]]:
    """Each event of one name with its length; those that began in the profiled steps."""
    rows = _rows(capture).filter(pl.col("name") == name)
    if in_steps:
        inside = begun_within(step_windows(capture), rows["start_ns"].to_numpy())
        rows = rows.filter(pl.Series(inside))
    for text, start_ns, end_ns in rows.select("host_event", "start_ns", "end_ns").iter_rows():
        yield host_events.decode(text), end_ns - start_ns


def _sum(values: Iterator[int | None]) -> int | None:
    """None where one is unknown, or there are none."""
    total = None
    for value in values:
        if value is None:
            return None
        total = value if total is None else total + value
    return total
