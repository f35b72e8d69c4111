"""What memory held, compared with sums over the events that need none of the analysis."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors import kineto
from gpuprof.collectors.stacks import user_line
from gpuprof.roofline.memory.use import memory_use
from gpuprof.roofline.memory_figures import DeviceMemory, MemoryMoment

RECORDINGS = Path(__file__).parents[3] / "shared" / "data"


class Allocator:
    """Writes the events of an allocator of one device that held `earlier` bytes before."""

    def __init__(self, build: CaptureBuilder, device: int | None, earlier: int = 0) -> None:
        self.live: dict[int, int] = {}
        self.earlier = earlier
        self._rows = build.rows["allocations"]
        self._device = device

    @property
    def total(self) -> int:
        """All that is allocated now."""
        return self.earlier + sum(self.live.values())

    def allocate(self, time: int, address: int, size: int, op: int | None = None) -> None:
        """One allocation."""
        self.live[address] = size
        self._event(time, address, size, op)

    def free(self, time: int, address: int, size: int | None = None) -> None:
        """One free; with `size` of what was allocated before."""
        if size is None:
            size = self.live.pop(address)
        else:
            self.earlier -= size
        self._event(time, address, -size, None)

    def _event(self, time: int, address: int, size: int, op: int | None) -> None:
        row: dict[str, Any] = {"time_ns": time, "device": self._device, "address": address}
        if self._device is not None:
            row |= {"total": self.total, "reserved": 1 << 30}
        self._rows.append({**row, "bytes": size, "op_id": op})


def memory_of(build: CaptureBuilder) -> DeviceMemory:
    """The memory of the one device."""
    use = memory_use(build.build())
    assert use is not None
    (memory,) = use.devices
    return memory


def peak_of(build: CaptureBuilder) -> MemoryMoment:
    """Its peak."""
    peak = memory_of(build).peak
    assert peak is not None
    return peak


def kinds(moment: MemoryMoment) -> dict[str, int]:
    """Bytes by kind."""
    return {each.kind: each.bytes for each in moment.kinds}


def assert_adds_up(moment: MemoryMoment) -> None:
    """Kinds and origins each add up to what was allocated."""
    assert sum(each.bytes for each in moment.kinds) == moment.allocated_bytes
    held = sum(each.bytes for each in moment.holders) + moment.other_holders_bytes
    assert held == moment.allocated_bytes


@pytest.mark.parametrize("device", [0, 3, None])
@pytest.mark.parametrize("seed", range(5))
def test_peak_and_steps_are_those_of_a_sum_over_the_events(
    build: CaptureBuilder, device: int | None, seed: int
) -> None:
    # What main memory held before nobody knows: its sum begins at 0.
    chance = random.Random(seed)
    allocator = Allocator(build, device, earlier=0 if device is None else 5000)
    history = []
    for time in range(10, 1000, 10):
        if allocator.live and chance.random() < 0.45:
            allocator.free(time, chance.choice(list(allocator.live)))
        else:
            # Addresses come again, as those of an allocator that caches do.
            free = [address for address in range(100, 160) if address not in allocator.live]
            allocator.allocate(time, chance.choice(free), chance.randrange(1, 1 << 20))
        history.append((time, allocator.total))
    for begin, end in ((5, 495), (495, 1005)):
        build.step("profiled", begin, end)
    memory = memory_of(build)
    in_steps = [
        [total for time, total in history if a <= time < b] for a, b in ((5, 495), (495, 1005))
    ]
    # A step begins with what the one before it left.
    expected = [max(in_steps[0]), max([in_steps[0][-1], *in_steps[1]])]
    assert [step.peak_bytes for step in memory.steps] == expected
    assert [step.end_bytes for step in memory.steps] == [each[-1] for each in in_steps]
    assert memory.since_first_event == (device is None)
    assert memory.peak is not None
    assert memory.peak.allocated_bytes == expected[memory.peak.step - 1]  # type: ignore[operator]
    assert memory.peak.allocated_bytes >= 0.99 * max(expected)
    assert_adds_up(memory.peak)


def test_a_timeline_of_many_events_keeps_its_extremes(build: CaptureBuilder) -> None:
    allocator = Allocator(build, 0)
    totals = []
    for time in range(5000):
        if time % 2:
            allocator.free(time, 1)
        else:
            allocator.allocate(time, 1, 1000 + (time * 37) % 911)
        totals.append(allocator.total)
    timeline = memory_of(build).timeline
    assert timeline is not None
    assert len(timeline.times_ns) < 1000
    assert max(timeline.allocated_bytes) == max(totals)
    assert list(timeline.times_ns) == sorted(timeline.times_ns)
    for time, size in zip(timeline.times_ns[1:], timeline.allocated_bytes[1:], strict=True):
        assert size == totals[time]


def test_memory_is_for_what_its_operator_does(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    place = {"module": "up", "file": "train.py", "line": 42, "function": "forward"}
    forward = build.op("aten::mm", 100, 200, **place)
    inner = build.op("aten::empty", 110, 120, parent_id=forward)
    node = build.op("autograd::engine::evaluate_function: MmBackward0", 300, 400)
    backward = build.op("aten::mm", 310, 350, parent_id=node)
    build.range("Optimizer.step#Adam.step", 500, 600)
    optimizer = build.op("aten::add", 510, 550)
    allocator = Allocator(build, 0, earlier=7000)
    # Of mm: a workspace that it gives back, made last so that it lives at the peak.
    allocator.allocate(110, 1, 100, inner)
    allocator.allocate(315, 2, 200, backward)
    allocator.allocate(515, 3, 400, optimizer)
    allocator.allocate(700, 4, 800)
    allocator.allocate(710, 5, 1600, forward)
    allocator.free(711, 5)
    build.rows["ops"][forward]["end_ns"] = 720
    peak = peak_of(build)
    assert kinds(peak) == {
        "earlier": 7000,
        "workspace": 1600 + 400,
        "other": 800,
        "backward": 200,
        "activations": 100,
    }
    origins = {(each.operator, each.kind): each.blocks for each in peak.holders}
    # An operator that only allocates did so for the one around it.
    assert origins["aten::mm", "activations"] == 1
    assert origins["aten::mm", "workspace"] == 1
    assert origins["", "earlier"] is None
    (held,) = [each for each in peak.holders if each.kind == "activations"]
    assert (held.module, held.line) == ("up", "train.py:42 forward")
    assert_adds_up(peak)


def test_what_held_a_block_tells_more_than_its_operator(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    node = build.op("autograd::engine::evaluate_function: MmBackward0", 300, 400)
    allocator = Allocator(build, 0, earlier=1000)
    allocator.allocate(310, 7, 300, node)
    allocator.allocate(320, 8, 20, node)
    # The same address as before, when it was something else.
    seen = [
        (290, "optimizer step", 7, 300, "gradient"),
        (500, "optimizer step", 7, 300, "gradient"),
        (1000, "profile end", 7, 300, None),
        (1000, "profile end", 8, 20, None),
        (1000, "profile end", 1, 600, "parameter"),
        (1000, "profile end", 2, 100, "buffer"),
        (1000, "profile end", 3, 250, "optimizer state"),
    ]
    build.rows["memory_blocks"] = [
        {"time_ns": time, "moment": moment, "device": 0, "address": address}
        | {"bytes": size, "category": category, "state": "allocated"}
        for time, moment, address, size, category in seen
    ]
    peak = peak_of(build)
    assert kinds(peak) == {
        "parameters": 700,
        "gradients": 300,
        "optimizer state": 250,
        "earlier": 50,
        "backward": 20,
    }
    assert_adds_up(peak)


def test_main_memory_is_complete_in_the_last_step_alone(build: CaptureBuilder) -> None:
    for begin in (0, 100):
        build.step("profiled", begin, begin + 100)
    allocator = Allocator(build, None)
    allocator.allocate(10, 1, 999)
    # torch remembers another size of what it did not see begin this time: it is left out.
    allocator.free(20, 5, 77)
    allocator.free(30, 1)
    allocator.allocate(110, 2, 50)
    allocator.allocate(120, 3, 30)
    allocator.free(130, 3)
    build.rows["memory_blocks"] = [
        {"time_ns": 200, "moment": "profile end", "address": address, "bytes": size}
        | {"category": category, "state": "allocated"}
        for address, size, category in ((9, 400, "parameter"), (2, 50, None))
    ]
    memory = memory_of(build)
    assert [(step.step, step.peak_bytes, step.end_bytes) for step in memory.steps] == [
        (2, 480, 450)
    ]
    assert memory.peak is not None
    assert memory.peak.step == 2
    assert kinds(memory.peak) == {"parameters": 400, "other": 80}
    assert not memory.since_first_event


def test_events_that_were_lost_leave_no_composition(build: CaptureBuilder) -> None:
    allocator = Allocator(build, 0)
    allocator.allocate(10, 1, 1000)
    allocator.allocate(20, 2, 500)
    # The allocator says that there is less than what was not seen to end.
    build.rows["allocations"][1]["total"] = 900
    peak = peak_of(build)
    assert peak.allocated_bytes == 1000
    build.rows["allocations"][1]["total"] = 1100
    peak = peak_of(build)
    assert (peak.allocated_bytes, peak.kinds, peak.holders) == (1100, (), ())


def test_an_event_that_was_lost_ends_what_was_at_its_address(build: CaptureBuilder) -> None:
    allocator = Allocator(build, 0)
    allocator.allocate(10, 1, 1000)
    allocator.live.clear()
    allocator.allocate(20, 1, 3000)
    assert kinds(peak_of(build)) == {"other": 3000}


def test_without_addresses_there_is_a_peak_and_no_origin(build: CaptureBuilder) -> None:
    allocator = Allocator(build, 0, earlier=10)
    allocator.allocate(10, 1, 1000)
    allocator.free(20, 1)
    for row in build.rows["allocations"]:
        row["address"] = None
    peak = peak_of(build)
    assert peak.allocated_bytes == 1010


def test_calls_of_the_driver_in_steps_are_counted(build: CaptureBuilder) -> None:
    Allocator(build, 0).allocate(10, 1, 1000)
    build.step("profiled", 0, 100)
    for name, start in (("cudaMalloc", 10), ("cudaMemcpyAsync", 20), ("cudaFree", 500)):
        build.rows["launches"].append({"name": name, "start_ns": start, "end_ns": start + 7})
    use = memory_use(build.build())
    assert use is not None
    assert (use.driver_calls, use.driver_calls_ns) == (1, 7)


def test_nothing_recorded_is_nothing_said(build: CaptureBuilder) -> None:
    assert memory_use(build.build()) is None


def test_a_line_is_the_innermost_one_of_the_program() -> None:
    library = "/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py:125 forward"
    own = "/home/me/train.py:42 forward"
    outer = "/home/me/train.py:90 <module>"
    ours = "/src/gpuprof/collectors/steps/sources.py:290 call"
    assert user_line("\n".join((library, ours, own, outer))) == own
    assert user_line(library) == library
    assert user_line("") == ""


# Traces that torch wrote with allocator events.
RECORDED = (
    "recordings/h100_block_train_bf16.json.gz",
    "public/kineto/tracelens_h100_bert-small.json.gz",
    "public/kineto/tracelens_normalization_layer_test.json.gz",
)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_traces_have_the_peak_of_their_own_events(name: str) -> None:
    path = RECORDINGS / name
    if not path.exists():
        pytest.skip("the recordings beside the repository are absent")
    capture = kineto.read(path)
    use = memory_use(capture)
    assert use is not None
    (memory,) = use.devices
    assert memory.peak is not None
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    found = [event["args"] | {"ts": event["ts"]} for event in events if event["name"] == "[memory]"]
    found = sorted((each for each in found if each["Device Id"] == 0), key=lambda each: each["ts"])
    live: dict[int, int] = {}
    before = found[0]["Total Allocated"] - found[0]["Bytes"]
    highest = (before, dict(live))
    for event in found:
        if event["Bytes"] > 0:
            live[event["Addr"]] = event["Bytes"]
        else:
            del live[event["Addr"]]
        now = before + sum(live.values())
        assert now == event["Total Allocated"]
        if now > highest[0]:
            highest = (now, dict(live))
    total, at_peak = highest
    assert memory.peak.allocated_bytes == total
    if memory.peak.step in (None, 1):
        earlier = kinds(memory.peak).get("earlier", 0)
        assert earlier == total - sum(at_peak.values())
    assert_adds_up(memory.peak)


def test_reserved_and_address_come_with_a_trace(tmp_path: Path) -> None:
    args = {"Bytes": 8, "Total Allocated": 8, "Total Reserved": 32, "Addr": 2**47}
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 9},
        *(
            {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1}
            | {"ts": 1, "args": {**args, "Device Type": kind, "Device Id": kind - 1}}
            for kind in (0, 1)
        ),
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": events}))
    assert kineto.read(path).allocations.select("device", "reserved", "address").rows() == [
        (None, None, 2**47),
        (0, 32, 2**47),
    ]
