"""Where the files of ranks lie: folders, captures, and addresses that fsspec reads."""

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors import storage
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.joining.ranks import renumbered
from gpuprof.profiler.cluster.places import files_of_ranks, is_address, name_of
from gpuprof.profiler.cluster.reading import read_capture


@pytest.fixture
def memory() -> Iterator[str]:
    """The address of an empty folder of fsspec's file system in memory."""
    files = fsspec.filesystem("memory")
    files.mkdir("/job")
    yield "memory://job"
    files.rm("/job", recursive=True)


def save_capture(path: Path, rank: int) -> None:
    builder = CaptureBuilder()
    builder.mm(0, 10 * (rank + 1))
    storage.save(renumbered(builder.build(), {0: rank}), path)


@pytest.mark.parametrize(
    ("place", "address"),
    [
        ("s3://bucket/run", True),
        ("simplecache::s3://bucket/run", True),
        ("traces", False),
        ("/data/run:1/x", False),
        ("C:/traces", False),
    ],
)
def test_what_an_address_is(place: str, address: bool) -> None:
    assert is_address(place) == address


def test_the_last_part_of_a_place_is_its_name() -> None:
    names = [name_of(place) for place in ("s3://bucket/run/", "s3://bucket/a.json", "a.json", "/")]
    assert names == ["run", "a.json", "a.json", "/"]


def test_files_of_a_folder_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("rank10.json", "rank9.json", ".hidden"):
        (tmp_path / name).touch()
    (tmp_path / "notes").mkdir()
    assert [name_of(each) for each in files_of_ranks(str(tmp_path))] == [
        "rank9.json",
        "rank10.json",
    ]
    assert files_of_ranks(str(tmp_path / "rank9.json")) == (str(tmp_path / "rank9.json"),)


def test_captures_of_hosts_in_one_folder_are_all_their_ranks(tmp_path: Path) -> None:
    for rank in (0, 1):
        save_capture(tmp_path / f"host{rank}.gpuprof", rank)
    places = files_of_ranks(str(tmp_path))
    assert [Path(each).parts[-2:] for each in places] == [
        ("host0.gpuprof", "rank=0"),
        ("host1.gpuprof", "rank=1"),
    ]
    assert [read_capture(each).manifest.ranks for each in places] == [(0,), (1,)]
    assert [read_capture(each).ops["end_ns"].to_list() for each in places] == [[10], [20]]
    assert files_of_ranks(str(tmp_path / "host1.gpuprof")) == places[1:]


def test_a_capture_at_an_address_is_copied_here_to_be_read(tmp_path: Path, memory: str) -> None:
    save_capture(tmp_path / "one.gpuprof", 3)
    files = fsspec.filesystem("memory")
    files.put(str(tmp_path / "one.gpuprof"), "/job/one.gpuprof", recursive=True)
    (place,) = files_of_ranks(memory)
    assert place.endswith("/job/one.gpuprof/rank=3")
    capture = read_capture(place)
    assert capture.manifest.ranks == (3,)
    assert capture.ops["end_ns"].to_list() == [40]


def test_a_trace_at_an_address_is_read(memory: str) -> None:
    trace = Path(__file__).resolve().parents[1] / "data/kineto/cpu-only.json"
    fsspec.filesystem("memory").put(str(trace), "/job/rank7.json")
    (place,) = files_of_ranks(memory)
    assert read_capture(place).manifest.ranks == (7,)
    assert files_of_ranks(place) == (place,)


@pytest.mark.parametrize("place", ["memory://job", "memory://nowhere", "unknown-protocol://x"])
def test_an_address_without_files_is_one_error(place: str, memory: str) -> None:
    with pytest.raises(CaptureError, match=place):
        files_of_ranks(place)


def test_a_folder_without_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no files here"):
        files_of_ranks(str(tmp_path))
    with pytest.raises(CaptureError, match="no such file"):
        files_of_ranks(str(tmp_path / "absent"))
