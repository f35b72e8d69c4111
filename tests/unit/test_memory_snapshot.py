"""Memory snapshots of torch, read as data alone: what they hold, and what is refused.

tests/data/memory_snapshot holds what tests/gpu/record_memory_snapshot.py wrote on an H200, its
folders' names shortened.
"""

import gzip
import math
import os
import pickle
import random
import struct
import tracemalloc
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from gpuprof.collectors import memory_snapshot, storage
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.files.data_pickle import load_data
from gpuprof.collectors.files.pickle_machine import Replacing, TooMuchData
from gpuprof.collectors.opening import open_trace, open_traces
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.memory.use import memory_use
from gpuprof.roofline.memory_figures import DeviceMemory, MemoryUse

RECORDED = Path(__file__).parents[1] / "data" / "memory_snapshot"
MB = 1 << 20


def any_data(chance: random.Random, protocol: int, depth: int = 4) -> Any:
    """Some nested data, of all kinds that `protocol` has; before 4 calls make sets and bytes."""
    scalars = (
        *(None, True, False, 0, 255, 256, 65535, 65536, -1, 2**31, -(2**63), 2**63, 1.5),
        *("", "name", "ü" * 300, "\ud800", "x" * 70_000),
        *((b"", b"\x00" * 300) if protocol > 3 else ()),
    )
    kind = chance.randrange(6 if protocol > 3 else 5) if depth else 0
    if kind < 2:
        return chance.choice(scalars)
    parts = [any_data(chance, protocol, depth - 1) for _ in range(chance.randrange(5))]
    if kind == 2:
        return tuple(parts)
    if kind == 3:
        return {chance.choice(("a", "b", 7, None, 2.5)): part for part in parts}
    if kind == 4:
        # The same object twice comes from the memo.
        return [*parts, *parts]
    return {chance.choice(scalars) for _ in range(chance.randrange(4))}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_data_is_what_pickle_makes_of_it(protocol: int) -> None:
    chance = random.Random(protocol)
    for _ in range(60):
        value = any_data(chance, protocol)
        assert load_data([pickle.dumps(value, protocol=protocol)]) == value


class RunsCode:
    """A pickle of it makes a folder when it is loaded."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.folder,)


def snapshot(**more: Any) -> dict[str, Any]:
    """Two blocks of which one lives, with the history that made them; 4 MB reserved."""
    frames = [
        {"filename": "/x/site-packages/torch/nn/functional.py", "line": 9, "name": "relu"},
        {"filename": "train.py", "line": 42, "name": "forward"},
        {"filename": "train.py", "line": 90, "name": "<module>"},
    ]
    blocks = [
        {"address": 4096, "size": 2 * MB, "requested_size": 2 * MB - 100, "frames": frames}
        | {"state": "active_allocated"},
        {"address": 4096 + 2 * MB, "size": 2 * MB, "requested_size": 7, "state": "inactive"},
    ]
    segment = {"device": 0, "address": 4096, "total_size": 4 * MB, "stream": 0, "blocks": blocks}
    entries = [
        {"action": "segment_alloc", "addr": 4096, "size": 4 * MB},
        {"action": "alloc", "addr": 4096, "size": 2 * MB - 100, "frames": frames},
        {"action": "alloc", "addr": 4096 + 2 * MB, "size": 7, "frames": frames[1:]},
        {"action": "oom", "size": 50 * MB, "device_free": 3 * MB, "frames": frames},
        {"action": "free_requested", "addr": 4096 + 2 * MB, "size": 7},
        {"action": "free_completed", "addr": 4096 + 2 * MB, "size": 7},
    ]
    times = [{**entry, "time_us": 1000 + number} for number, entry in enumerate(entries)]
    return {"segments": [segment], "device_traces": [times, []], **more}


def written(folder: Path, value: Any, name: str = "snapshot.pickle") -> Path:
    """`value` as a file."""
    path = folder / name
    path.write_bytes(value if isinstance(value, bytes) else pickle.dumps(value))
    return path


def memory_of(path: Path) -> tuple[MemoryUse, DeviceMemory]:
    """The memory of the one device in a snapshot."""
    use = memory_use(open_trace(path))
    assert use is not None
    (memory,) = use.devices
    return use, memory


def test_a_snapshot_has_its_history_by_line(tmp_path: Path) -> None:
    use, memory = memory_of(written(tmp_path, snapshot()))
    assert memory.peak is not None
    # Of what was asked for, as the history has it.
    assert memory.peak.allocated_bytes == 2 * MB - 100 + 7
    assert memory.peak.reserved_bytes == 4 * MB
    assert [(each.bytes, each.line) for each in memory.peak.holders] == [
        (2 * MB - 93, "train.py:42 forward")
    ]
    timeline = memory.timeline
    assert timeline is not None
    assert timeline.allocated_bytes == (0, 2 * MB - 100, 2 * MB - 93, 2 * MB - 100)
    held = memory.fragmentation
    assert held is not None
    assert (held.reserved_bytes, held.allocated_bytes) == (4 * MB, 2 * MB)
    assert (held.largest_free_block_bytes, held.inactive_split_bytes) == (2 * MB, 2 * MB)
    failure = use.out_of_memory
    assert failure is not None
    assert (failure.asked_bytes, failure.free_bytes, failure.line) == (
        *(50 * MB, 3 * MB),
        "train.py:42 forward",
    )
    # What lived before the failed allocation, not what did when the snapshot was taken.
    assert failure.live is not None
    assert failure.live.allocated_bytes == 2 * MB - 93
    assert failure.fragmentation is None


def test_a_snapshot_at_the_failure_has_the_free_pieces_then(tmp_path: Path) -> None:
    value = snapshot()
    del value["device_traces"][0][4:]
    value["segments"][0]["blocks"][1]["state"] = "active_allocated"
    use, _ = memory_of(written(tmp_path, value))
    assert use.out_of_memory is not None
    assert use.out_of_memory.fragmentation is not None


def test_a_snapshot_without_history_has_what_lives(tmp_path: Path) -> None:
    value = snapshot(device_traces=[])
    path = tmp_path / "snapshot.pickle.gz"
    path.write_bytes(gzip.compress(pickle.dumps(value)))
    _, memory = memory_of(path)
    assert memory.peak is None
    assert memory.fragmentation is not None
    # It can be taken for no step and no trace, and is analysed all the same.
    assert analyze(open_trace(path)).memory is not None


def test_snapshots_of_old_torch_have_blocks_in_order_and_no_times(tmp_path: Path) -> None:
    value = snapshot()
    for block in value["segments"][0]["blocks"]:
        del block["address"]
    for entry in value["device_traces"][0]:
        del entry["time_us"]
    capture = open_trace(written(tmp_path, value))
    assert capture.memory_blocks["address"].to_list() == [4096, 4096 + 2 * MB]
    assert capture.allocations["time_ns"].to_list() == [1, 2, 4]


def test_a_snapshot_beside_a_trace_is_no_rank(tmp_path: Path) -> None:
    trace = tmp_path / "rank0.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 9}
    trace.write_text(f'{{"traceEvents": [{event}]}}'.replace("'", '"'))
    path = written(tmp_path, snapshot())
    for capture in (open_trace(tmp_path), open_traces([trace, path])):
        assert capture.manifest.ranks == (0,)
        assert capture.memory_blocks.is_empty()
        (warning,) = [w for w in capture.processes[0].warnings if "snapshot" in w]
        assert warning.startswith("left out: snapshot.pickle")


def test_a_recorded_training_step_is_told_by_line_to_the_byte() -> None:
    use, memory = memory_of(RECORDED / "training_step.pickle.gz")
    assert use.out_of_memory is None
    assert memory.peak is not None
    assert memory.peak.time_ns == memory.peak.time_ns // 1000 * 1000
    # Three blocks of two norms, two products and their biases, in float32.
    parameters = 3 * 4 * (2 * 256 + 2 * 256 * 1024 + 1024 + 256)
    by_line = {each.line.partition(":")[2]: each for each in memory.peak.holders}
    assert by_line["45 __init__"].bytes == parameters
    assert by_line["45 __init__"].blocks == 18
    assert by_line["53 step"].bytes == 2 * parameters
    # A sum over the history that needs none of the reader.
    with gzip.open(RECORDED / "training_step.pickle.gz") as file:
        content = pickle.load(file)
    live: dict[int, int] = {}
    highest = 0
    for entry in content["device_traces"][0]:
        if entry["action"] == "alloc":
            live[entry["addr"]] = entry["size"]
        elif entry["action"] == "free_requested":
            del live[entry["addr"]]
        highest = max(highest, sum(live.values()))
    assert memory.peak.allocated_bytes == highest
    assert memory.steps == ()


def test_a_recorded_failure_is_what_torch_says_of_it() -> None:
    use, memory = memory_of(RECORDED / "out_of_memory.pickle.gz")
    failure = use.out_of_memory
    assert failure is not None
    # torch's own statistics at that moment, of facts.json beside the snapshot.
    assert failure.asked_bytes <= 329_252_864 < failure.asked_bytes + 2 * MB
    assert failure.free_bytes == 148_980_760_576
    assert failure.line == "record_memory_snapshot.py:36 forward"
    assert failure.live is not None
    assert failure.live.allocated_bytes == 307_943_936
    assert failure.live.reserved_bytes == 341_835_776
    assert failure.fragmentation is not None
    assert failure.fragmentation.allocated_bytes == 308_042_752
    assert failure.fragmentation.inactive_split_bytes == 33_793_024
    by_line = {(each.line.partition(":")[2], each.kind): each for each in failure.live.holders}
    assert by_line["45 __init__", "other"].bytes == 25_208_832
    assert by_line["53 step", "other"].bytes == 50_417_664
    # What the program had allocated before the history began.
    earlier = [each.bytes for each in failure.live.holders if each.kind == "earlier"]
    assert sum(earlier) == 2 * 33_554_432 + MB
    (advice,) = failure.advice
    assert advice.startswith("The one allocation is 52%")
    assert memory.fragmentation is not None


def refused(path: Path) -> str:
    """The one line that a damaged or hostile file gets."""
    with pytest.raises(CaptureError) as raised:
        memory_snapshot.read(path)
    text = str(raised.value)
    assert "\n" not in text
    assert len(text) < 600
    return text


@pytest.mark.parametrize(
    "value",
    [
        OrderedDict(a=1),
        complex(1, 2),
        math.sqrt,
        RunsCode,
        Path("x"),
        range(3),
        slice(3),
        frozenset([1]),
        bytearray(b"x"),
        2**200,
    ],
    ids=lambda value: type(value).__name__,
)
def test_everything_but_data_is_refused(value: object, tmp_path: Path) -> None:
    for protocol in range(6):
        content = pickle.dumps(snapshot(more=value), protocol=protocol)
        assert "byte" in refused(written(tmp_path, content))


def test_a_snapshot_with_code_in_it_runs_none(tmp_path: Path) -> None:
    made = tmp_path / "made"
    path = written(tmp_path, snapshot(more=RunsCode(str(made))))
    assert "only data is read" in refused(path)
    with pytest.raises(CaptureError, match="only data is read"):
        open_trace(path)
    assert not made.exists()


# What each would make Python's own unpickler do stands beside it.
HOSTILE = {
    # Allocate 32 GB for a memo of that size.
    "a huge index": b"\x80\x04]r\xff\xff\xff\x7f.",
    "a huge length": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b"x.",
    "a huge text": b"\x80\x04X\xff\xff\xff\xffx.",
    # End the process when the key is hashed.
    "a deep key": b"\x80\x04})" + b"\x85" * 200_000 + b"Ns.",
    "a deep member": b"\x80\x04\x8f()" + b"\x85" * 200_000 + b"\x90.",
    "many marks": b"\x80\x04" + b"(" * 100_000 + b"t" * 100_000 + b".",
    "a long integer": b"\x80\x04\x8b\xff\xff\xff\x7f" + b"\x01" * 100 + b".",
    "nothing": b"",
    "no pickle": b"not one",
    "no end": b"\x80\x04",
    "no object": b"\x80\x04.",
    "a frame": b"\x80\x04\x95",
    "an unknown protocol": b"\x80\x09N.",
    "a list as a dictionary": b"\x80\x04](K\x01K\x02u.",
    "an odd dictionary": b"\x80\x04}(K\x01u.",
    "an item of nothing": b"\x80\x04(e.",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_get_one_line(name: str, tmp_path: Path) -> None:
    file = written(tmp_path, HOSTILE[name])
    assert file.name in refused(file)


def test_what_stands_on_the_stack_beside_is_no_matter(tmp_path: Path) -> None:
    deep = b"\x80\x04)" + b"\x85" * 200_000 + b"0" + pickle.dumps(snapshot())[2:]
    assert memory_of(written(tmp_path, deep))[1].peak is not None


def laughing(levels: int) -> list[Any]:
    """Ten references to ten references to ...: text of it has 10 to the power of `levels` parts."""
    value: list[Any] = ["ha"]
    for _ in range(levels):
        value = [value] * 10
    return value


def changed(path: tuple[Any, ...], value: object) -> dict[str, Any]:
    """The snapshot with one part replaced."""
    whole = snapshot()
    part: Any = whole
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return whole


ENTRY, BLOCK = ("device_traces", 0, 1), ("segments", 0, "blocks", 0)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("segments",), None),
        (("segments",), laughing(12)),
        (("segments", 0, "blocks"), 7),
        (("segments", 0, "device"), 1 << 40),
        (("segments", 0, "total_size"), "4"),
        ((*BLOCK, "state"), "molten"),
        ((*BLOCK, "state"), ["inactive"]),
        ((*BLOCK, "size"), None),
        ((*BLOCK, "frames"), laughing(12)),
        ((*BLOCK, "frames"), [{"filename": laughing(12), "line": 1, "name": "f"}]),
        ((*BLOCK, "frames"), [{"filename": "f", "line": laughing(12), "name": "f"}]),
        ((*ENTRY, "time_us"), "now" * 1000),
        ((*ENTRY, "time_us"), [1]),
        ((*ENTRY, "time_us"), 1 << 62),
        ((*ENTRY, "size"), 1.5),
        ((*ENTRY, "addr"), True),
        ((*ENTRY, "action"), None),
        (("device_traces",), 3),
        (("device_traces", 0), "oom"),
        (("device_traces", 0, 0), []),
    ],
)
def test_other_forms_get_one_line(path: tuple[Any, ...], value: object, tmp_path: Path) -> None:
    file = written(tmp_path, changed(path, value))
    # An action that is not known is passed over, as a newer torch may have more.
    if path[-1] == "action":
        assert open_trace(file).allocations.height == 2
    else:
        assert "another form" in refused(file)


def test_stacks_of_many_frames_are_cut(tmp_path: Path) -> None:
    frame = {"filename": "a" * 10_000, "line": 1, "name": "f"}
    path = written(tmp_path, changed((*BLOCK, "frames"), [frame] * 100_000))
    stack = open_trace(path).memory_blocks["stack"][0]
    assert len(stack) < 10_000


def test_damaged_files_get_one_line_or_are_read(tmp_path: Path) -> None:
    whole = pickle.dumps(snapshot())
    chance = random.Random(1)
    damaged = [whole[:end] for end in range(0, len(whole), 7)]
    for _ in range(400):
        content = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        damaged.append(bytes(content))
    problems = [problem(written(tmp_path, content)) for content in damaged]
    assert "\n" not in "".join(problems)
    assert 0 < problems.count("") < len(problems)


def problem(path: Path) -> str:
    """What is wrong with a file; "" where it is read."""
    try:
        memory_use(memory_snapshot.read(path))
    except CaptureError as error:
        return str(error)
    return ""


def test_a_snapshot_of_no_gpu_says_so(tmp_path: Path) -> None:
    empty = {"segments": [], "device_traces": []}
    assert "no memory of a GPU" in refused(written(tmp_path, empty))


def long_history(entries: int) -> dict[str, Any]:
    """Blocks that are made and given back, each with a list of its own of the same few frames."""
    value = snapshot()
    frames = value["segments"][0]["blocks"][0]["frames"]
    value["device_traces"] = [
        [
            {"action": action, "addr": 1 << 40, "size": 1 << 20, "time_us": 10**9 + number}
            | {"frames": [*frames] * 40, "stream": 0, "user_metadata": ""}
            for number in range(entries // 2)
            for action in ("alloc", "free_requested")
        ]
    ]
    return value


def test_a_history_is_read_that_is_larger_than_what_its_objects_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, long_history(20_000))
    most = path.stat().st_size // 2
    monkeypatch.setattr("gpuprof.collectors.files.data_pickle.MOST_BYTES", most)
    allocations = open_trace(path).allocations
    assert allocations.height == 20_000
    assert allocations["total"].unique().sort().to_list() == [2 * MB - 100, 3 * MB - 100]
    assert allocations["time_ns"].is_sorted()
    (stack,) = allocations["stack"].unique()
    assert stack.split("\n")[1] == "train.py:42 forward"
    monkeypatch.setattr("gpuprof.collectors.files.data_pickle.MOST_BYTES", most // 6)
    assert "max_entries" in refused(path)


def test_a_stored_history_of_long_stacks_is_read_again(tmp_path: Path) -> None:
    value = long_history(40_000)
    frames = [{"filename": "f" * 290, "line": line, "name": "step"} for line in range(20)]
    for entry in value["device_traces"][0]:
        entry["frames"] = frames
    storage.save(open_trace(written(tmp_path, value)), tmp_path / "stored.gpuprof")
    stacks = storage.load(tmp_path / "stored.gpuprof").allocations["stack"]
    assert stacks.str.len_bytes().sum() > 200 * MB


def test_a_history_of_two_devices_is_told_apart(tmp_path: Path) -> None:
    value = snapshot()
    value["device_traces"] = [value["device_traces"][0], [], long_history(6)["device_traces"][0]]
    allocations = open_trace(written(tmp_path, value)).allocations
    assert allocations["device"].to_list() == [0] * 3 + [2] * 6
    assert allocations["total"].to_list()[3:] == [MB, 0] * 3


def test_stacks_of_more_frames_than_are_pickled_at_a_time_are_whole(tmp_path: Path) -> None:
    value = snapshot()
    library = {"filename": "/x/site-packages/torch/_ops.py", "line": 1, "name": "call"}
    own = {"filename": "train.py", "line": 7, "name": "main"}
    value["device_traces"][0][1]["frames"] = [library] * 1500 + [own]
    stack = open_trace(written(tmp_path, value)).allocations["stack"][0]
    assert stack.split("\n")[1:] == ["train.py:7 main"]


def test_a_snapshot_whose_objects_are_enormous_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuprof.collectors.files.data_pickle.MOST_BYTES", 1 << 20)
    sets = b"\x80\x04" + b"\x8f0" * 10_000 + pickle.dumps(snapshot(), protocol=4)[2:]
    said = refused(written(tmp_path, sets))
    assert "its objects take more than 1 MiB of memory; record a shorter history" in said


# Each makes objects of as many bytes as it can with as few of its own.
BOMBS = {
    "lists": b"]",
    "dictionaries": b"}",
    "sets": b"\x8f",
    "numbers": b"M\xff\xff",
    "long numbers": b"\x8a\x01\x7f",
    "texts": b"\x8c\x00",
    "wide texts": b"\x8c\x0e" + "\U0001f600aaaaaaaaaa".encode(),
    "tuples of one": b"K\x01\x85",
    "tuples of three": b"K\x01K\x01K\x01\x87",
    "lists of one": b"](K\x01e",
    "lists of one, appended": b"]K\x01a",
    "dictionaries of one": b"}(K\x01K\x01u",
    "dictionaries of six": b"}(K\x01K\x01K\x02K\x01K\x03K\x01K\x04K\x01K\x05K\x01K\x06K\x01u",
    "sets of five": b"\x8f(K\x01K\x02K\x03K\x04K\x05\x90",
    "memo": b"N\x940",
    "references": b"h\x00",
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_objects_take_is_bounded(name: str) -> None:
    content = b"\x80\x04]\x94" + BOMBS[name] * (1 << 18)
    assert bytes_until_refused(content, MB) < 4 * MB


def bytes_until_refused(content: bytes, most: int, replacing: Replacing | None = None) -> int:
    """The memory that a pickle takes before it is refused. A list that grows is copied."""
    pieces = (content[at : at + (1 << 16)] for at in range(0, len(content), 1 << 16))
    tracemalloc.start()
    try:
        with pytest.raises(TooMuchData):
            load_data(pieces, most, replacing)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak


class NothingStays:
    """Puts None where anything was built."""

    held_bytes = 0

    def replaced(self, built: Any) -> None:
        """See `Replacing`."""


# Each keeps something of what was replaced.
KEPT = {
    "dictionaries in the memo": b"}\x94\x94\x94\x94(K\x01K\x02u",
    "dictionaries in a list": b"]}\x94(K\x01K\x02ua",
    "numbers in the memo": b"}(K\x01M\xff\xff\x94\x94u",
    "lists in the memo": b"]\x94\x94\x94(K\x01K\x02e",
}


@pytest.mark.parametrize("name", KEPT)
def test_what_stays_of_replaced_objects_is_counted(name: str) -> None:
    content = b"\x80\x04N\x94" + KEPT[name] * (1 << 18)
    assert bytes_until_refused(content, MB, NothingStays()) < 4 * MB


def test_what_was_replaced_is_counted_no_longer() -> None:
    entry = b"}(K\x01J\xff\xff\xff\x7fK\x02](K\x03M\xff\xffeu0"
    assert load_data([b"\x80\x04", entry * (1 << 16), b"N."], MB, NothingStays()) is None
    with pytest.raises(TooMuchData):
        load_data([b"\x80\x04", entry.replace(b"0", b"") * (1 << 16), b"N."], MB)


def test_one_block_in_a_million_places_is_no_snapshot(tmp_path: Path) -> None:
    value = snapshot()
    segment = value["segments"][0]
    segment["blocks"] *= 1000
    value["segments"] *= 1000
    assert "another form" in refused(written(tmp_path, value))
    value = snapshot()
    value["device_traces"] = [value["device_traces"][0] * 1000] * 1000
    assert "another form" in refused(written(tmp_path, value))
