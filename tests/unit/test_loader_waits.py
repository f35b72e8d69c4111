"""Batches that a program asks DataLoaders for, and who works meanwhile."""

import threading
import time
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from gpuprof.collectors import host_events
from gpuprof.collectors.host_events import LoaderStart, LoaderWorkers, NextBatch
from gpuprof.collectors.live.loader_waits import LoaderWaits
from gpuprof.collectors.live.process_counts import ProcessCounts, counts_of

ROWS = 4


class Rows(Dataset[torch.Tensor]):
    """Rows that take some time each, computing or asleep."""

    def __init__(self, busy_s: float, asleep_s: float) -> None:
        self.busy_s, self.asleep_s = busy_s, asleep_s

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> torch.Tensor:
        began_s = time.thread_time()
        while time.thread_time() - began_s < self.busy_s:
            pass
        time.sleep(self.asleep_s)
        return torch.full((2,), float(index))


def events_of(recorder: LoaderWaits) -> list[object]:
    return [host_events.decode(str(row["host_event"])) for row in recorder.stop()["ranges"]]


@pytest.mark.parametrize(("busy_s", "asleep_s"), [(0.01, 0.0), (0.0, 0.02)])
def test_a_loader_without_workers_computes_or_waits_itself(busy_s: float, asleep_s: float) -> None:
    if counts_of().cpu_ns is None:
        pytest.skip("this system keeps no count of a thread's time")
    recorder = LoaderWaits()
    recorder.start()
    # One batch of all rows, and the end.
    (batch,) = DataLoader(Rows(busy_s, asleep_s), batch_size=ROWS)
    rows = recorder.stop()["ranges"]
    assert batch.shape == (ROWS, 2)
    begun, *rows = rows
    assert begun["name"] == "data loader: start"
    assert [row["name"] for row in rows] == ["data loader: next batch"] * 2
    event = host_events.decode(str(rows[0]["host_event"]))
    assert isinstance(event, NextBatch)
    assert (event.workers, event.pinned) == (0, False)
    assert event.cpu_ns is not None
    # The counts of both kinds: what it computed is there, and sleep is not.
    assert event.cpu_ns >= 0.9e9 * busy_s * ROWS
    length_ns = int(str(rows[0]["end_ns"])) - int(str(rows[0]["start_ns"]))
    # The two clocks differ by little.
    assert length_ns - event.cpu_ns >= 0.9e9 * asleep_s * ROWS - 0.1 * length_ns


def test_workers_are_told_apart_from_the_thread_that_waits_for_them() -> None:
    recorder = LoaderWaits()
    recorder.start()
    # Asked for one batch each; all rows but the first few come while the profile runs.
    batches = iter(DataLoader(Rows(0.01, 0.0), batch_size=1, num_workers=1, prefetch_factor=1))
    for _ in range(ROWS):
        next(batches)
    start, *waits, workers = events_of(recorder)
    assert start == LoaderStart(workers=1, pinned=False)
    assert len(waits) == ROWS
    assert all(isinstance(wait, NextBatch) and wait.workers == 1 for wait in waits)
    assert isinstance(workers, LoaderWorkers)
    assert workers.workers == 1
    if workers.cpu_ns is not None:
        assert workers.cpu_ns >= 0.9 * 10_000_000


def test_only_batches_of_the_profile_are_recorded_and_torch_is_left_as_it_was() -> None:
    from torch.utils.data import dataloader

    original = dataloader._BaseDataLoaderIter.__next__
    batches = iter(DataLoader(Rows(0, 0), batch_size=1))
    next(batches)
    recorder = LoaderWaits()
    recorder.start()
    next(batches)
    assert len(events_of(recorder)) == 1
    assert dataloader._BaseDataLoaderIter.__next__ is original
    assert DataLoader.__iter__.__module__ == "torch.utils.data.dataloader"
    next(batches)
    assert recorder.stop() == {"ranges": []}


def test_a_thread_that_fetches_ahead_is_no_wait_of_a_step() -> None:
    recorder = LoaderWaits()
    recorder.start()
    fetched: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: fetched.extend(DataLoader(Rows(0, 0))))
    thread.start()
    thread.join()
    assert len(fetched) == ROWS
    assert recorder.stop() == {"ranges": []}


def test_an_error_of_the_dataset_reaches_the_program() -> None:
    class Failing(Rows):
        def __getitem__(self, index: int) -> torch.Tensor:
            raise KeyError("no such row")

    recorder = LoaderWaits()
    recorder.start()
    with pytest.raises(KeyError, match="no such row"):
        next(iter(DataLoader(Failing(0, 0))))
    assert len(events_of(recorder)) == 2


def test_what_the_system_does_not_count_is_unknown(tmp_path: Path) -> None:
    assert counts_of(7, root=str(tmp_path)) == ProcessCounts()
    folder = tmp_path / "7"
    folder.mkdir()
    (folder / "schedstat").write_text("500 30 2\n")
    assert counts_of(7, root=str(tmp_path)) == ProcessCounts(500, 30)
    (folder / "io").write_text("rchar: 4096\nwchar: 1\nread_bytes: 512\n")
    later = counts_of(7, root=str(tmp_path))
    assert later == ProcessCounts(500, 30, 4096, 512)
    assert later.since(ProcessCounts(100, 10)) == ProcessCounts(400, 20)
    assert later.plus(later) == ProcessCounts(1000, 60, 8192, 1024)


def test_batches_that_workers_made_are_counted_also_those_that_nobody_took_yet() -> None:
    if counts_of().cpu_ns is None:
        pytest.skip("this system keeps no count of a thread's time")
    recorder = LoaderWaits()
    loader = DataLoader(Rows(0.0, 0.0), batch_size=1, num_workers=1, prefetch_factor=2)
    batches = iter(loader)
    recorder.start()
    next(batches)
    # Two more are made ahead, whenever there is room for them.
    deadline = time.monotonic() + 30
    while batches._worker_result_queue.qsize() < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    next(batches)
    while batches._worker_result_queue.qsize() < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    (team,) = [event for event in events_of(recorder) if isinstance(event, LoaderWorkers)]
    del batches
    # Those from the second on; of the first ones some may have been ready when it began to look.
    assert team.batches is not None
    assert 1 <= team.batches <= 3
