"""NVTX ranges of the program, seen through its Python entry points."""

import threading
from collections.abc import Iterator
from typing import Any

import nvtx
import pytest
import torch

from gpuprof.collectors.live import nvtx_ranges
from gpuprof.collectors.live.recorded_range import RecordedRange

# Made before anything is wrapped, if this module is the first to be imported.
MADE_EARLY = nvtx.annotate("early", domain="mine")
torch_nvtx: Any = torch.cuda.nvtx


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    nvtx_ranges.install()
    nvtx_ranges.take_recorded()
    yield
    nvtx_ranges.stop_recording()
    nvtx_ranges.on_push(None)
    nvtx_ranges.take_recorded()


@pytest.fixture
def torch_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.cuda.nvtx as a CPU build has it: each push raises."""

    class Absent:
        def __getattr__(self, name: str) -> Any:
            def fail(*_: object) -> None:
                raise RuntimeError("NVTX functions not installed")

            return fail

    monkeypatch.setattr(torch_nvtx, "_nvtx", Absent())


@pytest.fixture
def torch_with_nvtx(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.cuda.nvtx as a CUDA build has it, without a device."""

    class Present:
        def rangePushA(self, name: str) -> int:
            return 0

        def rangePop(self) -> int:
            return 0

    monkeypatch.setattr(torch_nvtx, "_nvtx", Present())


def recorded() -> list[tuple[str, str]]:
    """Name and domain of what was recorded, in the order in which they closed."""
    return [(found.name, found.domain) for found in nvtx_ranges.take_recorded()]


def test_ranges_of_the_nvtx_package_are_recorded() -> None:
    nvtx_ranges.start_recording()
    nvtx.push_range("outer")
    with nvtx.annotate("inner", color="red", domain="mine"):
        pass
    nvtx.pop_range()
    assert recorded() == [("inner", "mine"), ("outer", "nvtx")]


@pytest.mark.usefixtures("torch_with_nvtx")
def test_ranges_of_torch_are_recorded() -> None:
    nvtx_ranges.start_recording()
    with torch_nvtx.range("epoch {}", 3):
        torch_nvtx.range_push("inner")
        torch_nvtx.range_pop()
    assert recorded() == [("inner", "nvtx"), ("epoch 3", "nvtx")]


def test_a_range_has_its_thread_and_times() -> None:
    nvtx_ranges.start_recording()
    with nvtx.annotate("a"):
        pass
    (found,) = nvtx_ranges.take_recorded()
    assert found.thread == threading.get_native_id()
    assert 1_600_000_000_000_000_000 < found.start_ns <= found.end_ns


def test_a_decorated_function_is_a_range_of_its_name_or_message() -> None:
    @nvtx.annotate()
    def plain(x: int) -> int:
        return x + 1

    @nvtx.annotate("named", domain="mine")
    def named() -> None:
        raise ValueError("no")

    nvtx_ranges.start_recording()
    assert plain(1) == 2
    with pytest.raises(ValueError, match="no"):
        named()
    assert recorded() == [("plain", "nvtx"), ("named", "mine")]


def test_an_annotation_made_before_can_still_be_entered() -> None:
    earlier = nvtx.annotate.__new__(nvtx.annotate)
    earlier.__dict__.update({k: v for k, v in vars(MADE_EARLY).items() if k != "_gpuprof_label"})
    nvtx_ranges.start_recording()
    with earlier:
        pass
    assert len(recorded()) == 1


def test_nothing_is_kept_while_nobody_records() -> None:
    with nvtx.annotate("before"):
        pass
    nvtx_ranges.start_recording()
    with nvtx.annotate("during"):
        pass
    nvtx_ranges.stop_recording()
    with nvtx.annotate("after"):
        pass
    assert recorded() == [("during", "nvtx")]
    assert recorded() == []


def test_ends_are_matched_with_their_own_starts_across_a_pause() -> None:
    nvtx_ranges.start_recording()
    nvtx.push_range("epoch")
    nvtx_ranges.stop_recording()
    nvtx.push_range("iteration")
    nvtx_ranges.start_recording()
    nvtx.pop_range()
    nvtx.push_range("next")
    nvtx.pop_range()
    nvtx.pop_range()
    assert recorded() == [("iteration", "nvtx"), ("next", "nvtx"), ("epoch", "nvtx")]


def test_a_range_that_was_open_before_the_recording_is_left_out() -> None:
    nvtx.push_range("open")
    nvtx_ranges.start_recording()
    nvtx.pop_range()
    assert recorded() == []


@pytest.mark.usefixtures("torch_without_cuda")
def test_a_push_that_fails_opens_nothing() -> None:
    nvtx_ranges.start_recording()
    nvtx.push_range("outer")
    with pytest.raises(RuntimeError, match="NVTX functions not installed"):
        torch_nvtx.range_push("inner")
    nvtx.pop_range()
    assert recorded() == [("outer", "nvtx")]


def test_threads_do_not_mix() -> None:
    nvtx_ranges.start_recording()
    nvtx.push_range("main")

    def work() -> None:
        with nvtx.annotate("worker"):
            pass

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    nvtx.pop_range()
    assert recorded() == [("worker", "nvtx"), ("main", "nvtx")]


def test_a_listener_hears_each_range_that_opens() -> None:
    heard: list[str] = []
    nvtx_ranges.on_push(heard.append)
    with nvtx.annotate("a"):
        nvtx.push_range("b")
        nvtx.pop_range()
    nvtx_ranges.on_push(None)
    nvtx.push_range("c")
    nvtx.pop_range()
    assert heard == ["a", "b"]


def test_ranges_timed_elsewhere_are_kept_while_recording() -> None:
    region = RecordedRange("part", "region", 1, 10, 20, flops=5, bytes=6)
    nvtx_ranges.add(region)
    nvtx_ranges.start_recording()
    nvtx_ranges.add(region)
    assert nvtx_ranges.take_recorded() == [region]


def test_installing_twice_wraps_once() -> None:
    before = nvtx.push_range
    nvtx_ranges.install()
    assert nvtx.push_range is before


def test_pairs_that_a_handle_ends_are_recorded_across_threads() -> None:
    nvtx_ranges.start_recording()
    outer, inner = nvtx.start_range("outer"), nvtx.start_range("inner", domain="mine")
    nvtx.push_range("pushed")
    # They end in any order; without a tool NVTX gives all of them the same number.
    thread = threading.Thread(target=nvtx.end_range, args=(outer,))
    thread.start()
    thread.join()
    nvtx.pop_range()
    nvtx.end_range(inner)
    found = nvtx_ranges.take_recorded()
    assert [(each.name, each.domain, each.across_threads) for each in found] == [
        ("outer", "nvtx", True),
        ("pushed", "nvtx", False),
        ("inner", "mine", True),
    ]
    # The thread is the one that began it.
    assert {each.thread for each in found} == {threading.get_native_id()}
    assert all(each.start_ns <= each.end_ns for each in found)


def test_a_pair_that_was_begun_before_or_ends_after_is_left_out() -> None:
    before = nvtx.start_range("before")
    nvtx_ranges.start_recording()
    nvtx.end_range(before)
    after = nvtx.start_range("after")
    nvtx_ranges.stop_recording()
    nvtx.end_range(after)
    assert recorded() == []


def test_pairs_of_torch_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []

    class Present:
        def rangeStartA(self, name: str) -> int:
            return 7

        def rangeEnd(self, handle: int) -> None:
            ended.append(handle)

    monkeypatch.setattr(torch_nvtx, "_nvtx", Present())
    nvtx_ranges.start_recording()
    first, second = torch_nvtx.range_start("first"), torch_nvtx.range_start("second")
    assert first == second == 7
    torch_nvtx.range_end(first)
    torch_nvtx.range_end(second)
    assert recorded() == [("first", "nvtx"), ("second", "nvtx")]
    assert ended == [7, 7]


def test_a_pair_marks_steps_where_it_begins() -> None:
    heard: list[str] = []
    nvtx_ranges.on_push(heard.append)
    nvtx.end_range(nvtx.start_range("iteration"))
    assert heard == ["iteration"]
