"""Captures on disk: read back as written, replaced as a whole, refused where damaged."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from gpuprof.collectors import schema, storage
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError, CommandError
from gpuprof.collectors.files.writing import refuse_existing, write_file, write_parquet
from gpuprof.collectors.manifest import (
    CAPTURE_SCHEMA_VERSION,
    Calibration,
    Device,
    Fingerprint,
    Manifest,
    MeasuredCeiling,
    ParameterGroup,
    ProcessInfo,
    Schedule,
)
from gpuprof.collectors.stored_tables import JSON_COLUMNS, REQUIRED

_VALUES: dict[Any, list[Any]] = {
    pl.String: ["name \u00e9 \U0001f680 \n", "", None],
    pl.Boolean: [True, False, None],
    pl.Float32: [0.5, 0.0, None],
    pl.Float64: [1e300, 0.0, None],
    pl.Int32: [2**31 - 1, 0, None],
    pl.Int64: [2**63 - 1, 0, None],
}


_LAST: dict[Any, Any] = {pl.String: "z", pl.Int32: 7, pl.Int64: 7, pl.Float64: 7.0}


def _values(table: str, column: str, type_: Any) -> list[Any]:
    """Three values that such a column may have; the last is null where that is allowed."""
    if column == "host_event":
        return ['{"type": "CUDA graph capture"}', None, None]
    if type_ == pl.String and column in JSON_COLUMNS:
        return ["[]", None, None]
    if column in ("start_ns", "end_ns"):
        return [2**62, 0, 0]
    values = [2**60, 0, None] if column.endswith("_ns") else _VALUES[type_]
    required = REQUIRED[table]
    return [*values[:2], _LAST[type_]] if column in required else values


def full_capture(*ranks: int) -> Capture:
    """Every table with three rows a rank; the last has nulls."""
    tables = {}
    for name, columns in schema.TABLES.items():
        frames = [
            pl.DataFrame(
                {column: _values(name, column, type_) for column, type_ in columns.items()},
                schema=columns,
            ).with_columns(pl.lit(rank, pl.Int32).alias("rank"))
            for rank in ranks
        ]
        tables[name] = pl.concat(frames)
    device = Device(index=0, kind="cuda", name="NVIDIA H100", mig=False)
    ceiling = MeasuredCeiling(kind="memory", name="DRAM", rate=1e12, spread=0.1, repeats=3)
    processes = tuple(
        ProcessInfo(
            rank=rank,
            world_size=len(ranks),
            command=("train.py", "--x"),
            exit_code=7,
            ending="exception",
            fingerprint=Fingerprint(devices=(device,), environment={"OMP_NUM_THREADS": "4"}),
            schedule=Schedule(warmup=1),
            parameter_groups=(
                ParameterGroup(optimizer="SGD", elements=3, dtype="float", weight_decay=None),
            ),
            calibration=Calibration(
                device=device, torch="2", threads=4, measured_ns=1, ceilings=(ceiling,)
            ),
            warnings=(f"rank {rank} is slow",),
        )
        for rank in ranks
    )
    manifest = Manifest(
        tool_version="0.1.0", source="test", title="t", created_ns=2**62, ranks=ranks
    )
    return Capture(manifest, processes, **tables)


def assert_equal(one: Capture, other: Capture) -> None:
    assert one.manifest == other.manifest
    assert one.processes == other.processes
    for name in schema.TABLES:
        assert_frame_equal(one.table(name), other.table(name))


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "out.gpuprof"
    storage.save(full_capture(0), path)
    return path


@pytest.mark.parametrize("name", ["test_mm[256].gpuprof", "a*b?.gpuprof", "{x}.gpuprof", "**"])
def test_a_capture_whose_name_looks_like_a_pattern_is_read(tmp_path: Path, name: str) -> None:
    storage.save(full_capture(0), tmp_path / name)
    assert_equal(storage.load(tmp_path / name), full_capture(0))


@pytest.mark.parametrize("ranks", [(0,), (0, 1), (5, 2)])
def test_a_capture_is_read_back_as_it_was_saved(tmp_path: Path, ranks: tuple[int, ...]) -> None:
    capture = full_capture(*ranks)
    storage.save(capture, tmp_path / "out.gpuprof")
    assert_equal(storage.load(tmp_path / "out.gpuprof"), capture)
    folders = {f"rank={rank}" for rank in ranks}
    assert {path.name for path in (tmp_path / "out.gpuprof").iterdir()} == {
        "manifest.json",
        *folders,
    }


def test_any_engine_reads_a_table_with_its_rank_from_the_folder(tmp_path: Path) -> None:
    storage.save(full_capture(0, 1), tmp_path / "out.gpuprof")
    frame = pl.read_parquet(
        tmp_path / "out.gpuprof" / "rank=*" / "ops.parquet", hive_partitioning=True
    )
    assert frame.group_by("rank").len().sort("rank").rows() == [(0, 3), (1, 3)]


def test_tables_without_rows_have_no_file_and_come_back_empty(tmp_path: Path) -> None:
    manifest = Manifest(tool_version="0", source="test", title="t", created_ns=0)
    capture = Capture(manifest, (ProcessInfo(),))
    storage.save(capture, tmp_path / "out.gpuprof")
    assert not list(tmp_path.rglob("*.parquet"))
    assert_equal(storage.load(tmp_path / "out.gpuprof"), capture)


def test_further_files_are_kept_beside_the_tables(tmp_path: Path) -> None:
    storage.save(full_capture(0), tmp_path / "out.gpuprof", extra={"analysis.json": b"{}"})
    assert (tmp_path / "out.gpuprof" / "analysis.json").read_bytes() == b"{}"


def test_columns_of_an_older_capture_are_null(stored: Path) -> None:
    file = stored / "rank=0" / "kernels.parquet"
    pl.read_parquet(file).drop("sequence", "group").write_parquet(file)
    assert storage.load(stored).kernels["sequence"].null_count() == 3


def test_a_column_of_an_older_capture_is_read_by_its_name_of_today(stored: Path) -> None:
    file = stored / "rank=0" / "steps.parquet"
    steps = pl.read_parquet(file).with_columns(garbage_collection_ns=pl.lit(7, pl.Int64))
    steps.rename({"garbage_collection_ns": "gc_ns"}).write_parquet(file)
    assert set(storage.load(stored).steps["garbage_collection_ns"]) == {7}


# -- replacing ---------------------------------------------------------------------------------


def test_a_saved_capture_replaces_the_former_one_and_leaves_nothing_else(stored: Path) -> None:
    (stored / "analysis.json").write_bytes(b"old")
    storage.save(full_capture(1), stored)
    assert storage.load(stored).manifest.ranks == (1,)
    assert not (stored / "analysis.json").exists()
    assert not (stored / "rank=0").exists()
    assert os.listdir(stored.parent) == [stored.name]


def test_a_link_is_replaced_and_what_it_points_to_is_kept(stored: Path) -> None:
    link = stored.with_name("link.gpuprof")
    link.symlink_to(stored)
    storage.save(full_capture(1), link)
    assert not link.is_symlink()
    assert storage.load(link).manifest.ranks == (1,)
    assert storage.load(stored).manifest.ranks == (0,)


def test_a_failure_while_writing_keeps_the_former_capture(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", fail)
    with pytest.raises(OSError, match="No space left"):
        storage.save(full_capture(1), stored)
    monkeypatch.undo()
    assert storage.load(stored).manifest.ranks == (0,)
    assert os.listdir(stored.parent) == [stored.name]


def test_a_reader_never_sees_a_capture_that_is_partly_deleted(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def rmtree(path: Path, **options: Any) -> None:
        seen.append(storage.load(stored))
        remove(path, **options)

    remove = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", rmtree)
    storage.save(full_capture(1), stored)
    assert [capture.manifest.ranks for capture in seen][-1] == (1,)
    for capture in seen:
        assert_equal(capture, full_capture(*capture.manifest.ranks))


def test_one_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    for content in (b"one", b"two"):
        write_file(tmp_path / "report.html", content)
        assert (tmp_path / "report.html").read_bytes() == content
    assert os.listdir(tmp_path) == ["report.html"]


def test_what_exists_is_refused_unless_forced(stored: Path) -> None:
    with pytest.raises(CommandError, match="exists; choose another -o or pass --force"):
        storage.refuse_existing_capture(stored, force=False)
    storage.refuse_existing_capture(stored, force=True)
    storage.refuse_existing_capture(stored.with_name("new.gpuprof"), force=False)


def test_force_replaces_nothing_but_captures(stored: Path) -> None:
    folder = stored.with_name("folder")
    folder.mkdir()
    storage.refuse_existing_capture(folder, force=True)
    (folder / "precious.txt").write_text("")
    for path in (folder, folder / "precious.txt"):
        with pytest.raises(CommandError, match="no capture and will not be replaced"):
            storage.refuse_existing_capture(path, force=True)


def test_a_place_that_cannot_be_written_is_refused_before_work_starts(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="not a folder"):
        refuse_existing(tmp_path / "absent" / "out", force=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="not a folder"):
        refuse_existing(tmp_path / "file" / "out", force=True)


# -- damage ------------------------------------------------------------------------------------


def refusal(path: Path) -> str:
    """The one line with which `path` is refused."""
    with pytest.raises(CaptureError) as caught:
        storage.load(path)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text


def test_a_newer_capture_is_refused_with_the_remedy(stored: Path) -> None:
    newer = {"schema_version": CAPTURE_SCHEMA_VERSION + 1, "ranks": "in a form not known yet"}
    (stored / "manifest.json").write_bytes(msgspec.json.encode(newer))
    text = refusal(stored)
    assert f"schema version {CAPTURE_SCHEMA_VERSION + 1}" in text
    assert text.endswith("upgrade gpuprof")


def test_what_is_no_capture_is_refused(tmp_path: Path) -> None:
    assert "no such capture" in refusal(tmp_path / "absent")
    assert "not a capture" in refusal(tmp_path)
    (tmp_path / "file").write_text("")
    assert "not a capture" in refusal(tmp_path / "file")


@pytest.mark.parametrize("file", ["manifest.json", "rank=0/process.json"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[1]",
        b"\xff\xfe",
        b'{"rank": 0, "ranks": [0.5], "command": 1}',
        b'{"title": "\xe0", "command": ["\xe0"]}',
    ],
)
def test_damaged_json_is_refused_with_its_file(stored: Path, file: str, content: bytes) -> None:
    (stored / file).write_bytes(content)
    text = refusal(stored)
    assert file in text
    assert text.endswith("collect the capture again")


@pytest.mark.parametrize("ranks", [[], [0, 0], [0, 7]])
def test_ranks_that_the_folder_does_not_hold_once_each_are_refused(
    stored: Path, ranks: list[int]
) -> None:
    manifest = msgspec.json.decode((stored / "manifest.json").read_bytes())
    (stored / "manifest.json").write_bytes(msgspec.json.encode({**manifest, "ranks": ranks}))
    assert "rank" in refusal(stored)


def test_a_process_of_another_rank_is_refused(stored: Path) -> None:
    file = stored / "rank=0" / "process.json"
    process = msgspec.json.decode(file.read_bytes())
    file.write_bytes(msgspec.json.encode({**process, "rank": 2}))
    assert "expected rank 0" in refusal(stored)


def test_a_rank_without_its_folder_is_refused(stored: Path) -> None:
    shutil.rmtree(stored / "rank=0")
    assert "rank=0" in refusal(stored)


@pytest.mark.parametrize("damage", ["empty", "truncated", "noise", "another format"])
def test_a_damaged_table_is_refused_with_its_file(stored: Path, damage: str) -> None:
    file = stored / "rank=0" / "kernels.parquet"
    content = file.read_bytes()
    file.write_bytes(
        {
            "empty": b"",
            "truncated": content[: len(content) // 2],
            "noise": bytes(range(256)) * 8,
            "another format": b"SQLite format 3\0" * 64,
        }[damage]
    )
    assert "kernels.parquet: not readable as Parquet" in refusal(stored)


def test_a_column_of_another_type_is_refused(stored: Path) -> None:
    file = stored / "rank=0" / "kernels.parquet"
    frame = pl.read_parquet(file).with_columns(pl.lit("soon").alias("start_ns"))
    frame.write_parquet(file)
    assert "kernels.parquet" in refusal(stored)


def test_an_error_of_the_system_that_polars_words_itself_is_one_of_the_system(
    tmp_path: Path,
) -> None:
    with pytest.raises(FileNotFoundError, match="No such file or directory"):
        write_parquet(pl.DataFrame({"a": [1]}), tmp_path / "absent" / "table")
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as told:
        write_parquet(pl.DataFrame({"a": [1]}), full)
    assert (told.value.errno, told.value.filename) == (errno.ENOSPC, str(full))


def test_a_file_behind_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "behind").mkdir()
    link = tmp_path / "link.json"
    link.symlink_to(Path("behind") / "file.json")
    refuse_existing(link, force=False)
    write_file(link, b"one")
    assert link.is_symlink()
    assert (tmp_path / "behind" / "file.json").read_bytes() == b"one"
    assert os.listdir(tmp_path / "behind") == ["file.json"]


@pytest.mark.parametrize("place", ["/dev/full", "/dev/null"])
def test_a_device_is_no_place_for_a_file_also_with_force(place: str) -> None:
    with pytest.raises(CommandError, match=f"{place} is no plain file; choose another --json"):
        refuse_existing(Path(place), force=True, option="--json")


def test_a_missing_process_is_told_by_its_path_once(stored: Path) -> None:
    file = stored / "rank=0" / storage.PROCESS_FILE
    file.unlink()
    with pytest.raises(CaptureError) as told:
        storage.load(stored)
    again = "No such file or directory; collect the capture again"
    assert str(told.value) == f"{file}: {again}"
