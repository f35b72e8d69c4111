"""Every reader of a file, with good inputs of its own to damage, and what people do with them."""

import gzip
import io
import random
import sqlite3
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import msgspec
import polars as pl
from capture_builder import H100, CaptureBuilder
from hostile_ranks import nccl_logs, use_job, write_job
from hostile_reader import AWARE, HostileReader, damaged_file, temporary_folder
from hostile_results import (
    judge_results,
    read_cache,
    result_files,
    write_cache,
    write_results,
)
from made_up_pages import gate_result
from mutations import (
    damage_database,
    damaged_bytes,
    damaged_csv,
    damaged_frame,
    damaged_json,
    damaged_log,
    damaged_pickle,
    damaged_toml,
)
from nsys_exports import write_export
from recorded_gate import recorded_gate
from report_server import ReportServer

from gpuprof.collectors import storage
from gpuprof.collectors.manifest import Fingerprint
from gpuprof.collectors.opening import open_trace
from gpuprof.profiler.bench.reading import read_bench
from gpuprof.profiler.captures import read_stored_analysis, store
from gpuprof.profiler.configuration.file import read_configuration
from gpuprof.profiler.configuration.targets import Target, distinct
from gpuprof.profiler.gate.baseline import baseline_of, read_baseline, stored_side
from gpuprof.profiler.gate.history import History
from gpuprof.profiler.gate.results import read_result
from gpuprof.profiler.gate.rules import suite_rules
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.bench.results import BenchReport, CaseResult, Method
from gpuprof.roofline.claims.judge import judge
from gpuprof.roofline.claims.table import load_table
from gpuprof.roofline.gate.history import series_of, values_of
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.work.attribution import attribute
from gpuprof.roofline.work.op_tree import op_phases, range_members

DATA: Final = Path(__file__).parents[1] / "data"


def _read_trace(path: Path) -> None:
    """What follows reading must work on whatever was read."""
    capture = attribute(open_trace(path))
    assert capture.ops["op_id"].is_unique().all()
    assert op_phases(capture).height == capture.ops.height
    for members in range_members(capture, pl.Series(range(capture.kernels.height), dtype=pl.Int64)):
        assert len(members.kernels)
    assert not (capture.kernels["end_ns"] < capture.kernels["start_ns"]).any()
    assert capture.counters["value"].is_finite().all()


def _analyze(path: Path, folder: Path) -> Sequence[Sequence[object]]:
    made = folder / "made.gpuprof"
    return (
        ("analyze", path, "-o", made, "--force"),
        ("report", made, "-o", folder / "page.html", "--force"),
    )


# -- traces ----------------------------------------------------------------------------------------


def _kineto_traces() -> list[bytes]:
    found = [path.read_bytes() for path in sorted((DATA / "kineto").glob("*.json"))]
    replay = gzip.decompress((DATA / "kineto" / "h100_block_cudagraph.json.gz").read_bytes())
    return [content for content in (*found, replay[:12000]) if content]


def _damaged_trace(chance: random.Random, content: bytes) -> bytes:
    try:
        return damaged_json(chance, content)
    # Some of the originals are no valid JSON.
    except ValueError:
        return damaged_bytes(chance, content)


@lru_cache(maxsize=1)
def _small_capture() -> Any:
    build = CaptureBuilder()
    for step in range(3):
        begin = 1_700_000_000_000_000_000 + step * 1_000_000
        build.step("timed" if step < 2 else "profiled", begin, begin + 900_000)
        if step < 2:
            continue
        build.range("forward", begin + 1000, begin + 500_000)
        build.mm(begin + 2000, begin + 40_000, 512, 256, 128)
        build.convolution(begin + 41_000, begin + 60_000)
        build.kernel(begin + 3000, begin + 5000, begin + 90_000, "ampere_bf16_s16816gemm_nn")
        build.kernel(begin + 42_000, begin + 100_000, begin + 190_000, "cudnn::conv<int>(float*)")
        build.kernel(
            begin + 70_000, begin + 200_000, begin + 300_000, "ncclDevKernel_AllReduce_Sum",
            collective="all_reduce", message_bytes=1 << 20, group="0", group_size=2,
        )  # fmt: skip
    return build.build()


@lru_cache(maxsize=1)
def _nsys_export() -> bytes:
    with temporary_folder() as folder:
        file = folder / "small.sqlite"
        write_export(_small_capture(), file, session_ns=1_700_000_000_000_000_000)
        return file.read_bytes()


def _write_nsys(chance: random.Random, folder: Path) -> Path:
    path = folder / "export.sqlite"
    path.write_bytes(_nsys_export())
    if not _damage_database_file(chance, path):
        return path
    connection = sqlite3.connect(path)
    if chance.random() < 0.3:
        return _as_parquet(chance, connection, folder)
    connection.close()
    return path


def _as_parquet(chance: random.Random, connection: sqlite3.Connection, folder: Path) -> Path:
    """The tables of an export as `nsys export --type parquetdir` has them, damaged once more."""
    path = folder / "export_pqtdir"
    path.mkdir()
    for (name,) in connection.execute("SELECT name FROM sqlite_master").fetchall():
        cursor = connection.execute(f'SELECT * FROM "{name}"')
        columns = [column[0] for column in cursor.description]
        rows = cursor.fetchall()
        frame = pl.DataFrame(
            [
                pl.Series(name, [row[at] for row in rows], strict=False)
                for at, name in enumerate(columns)
            ]
        )
        if chance.random() < 0.5:
            frame = damaged_frame(chance, frame)
        _write_parquet(frame, path / f"{name}.parquet")
    connection.close()
    return path


def _write_parquet(frame: pl.DataFrame, file: Path) -> None:
    try:
        frame.write_parquet(file)
    # What Parquet has no type for.
    except pl.exceptions.PolarsError:
        file.unlink(missing_ok=True)


def _ncu_pages() -> list[bytes]:
    pages = [
        b"".join(gzip.decompress(file.read_bytes()).splitlines(True)[:8])
        for file in sorted((DATA / "ncu").glob("h200_targeted_*.csv.gz"))
    ]
    without_times = (
        b'"ID","Process ID","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
        b'"dram__bytes_read.sum"\n"","","","","","","","","byte"\n'
        b'"0","7","k","1","7","(32, 1, 1)","(1, 1, 1)","0","1,024.5"\n'
        b'"1","7","k","1","7","(32, 1, 1)","(1, 1, 1)","0","77"\n'
    )
    return [*pages, without_times]


def _dumps() -> list[bytes]:
    folder = DATA / "flight_recorder"
    return [(folder / name).read_bytes() for name in ("rank_1.json", "nccl_trace_rank_0")]


def _damaged_dump(chance: random.Random, content: bytes) -> bytes:
    is_json = content.startswith(b"{")
    return (damaged_json if is_json else damaged_pickle)(chance, content)


def _snapshots() -> list[bytes]:
    names = ("training_step", "out_of_memory")
    files = [DATA / "memory_snapshot" / f"{name}.pickle.gz" for name in names]
    return [gzip.decompress(file.read_bytes()) for file in files]


def _ncu_reports() -> list[bytes]:
    return [gzip.decompress((DATA / "ncu" / "h200_two_launches.ncu-rep.gz").read_bytes())]


@lru_cache(maxsize=1)
def _report_server() -> ReportServer:
    return ReportServer(*_ncu_reports())


def _read_report(path: Path) -> None:
    with patch.object(subprocess, "run", _report_server().run):
        _read_trace(path)


# -- what gpuprof itself wrote ---------------------------------------------------------------------


@lru_cache(maxsize=1)
def _stored_capture() -> dict[str, bytes]:
    """The files of a capture by name."""
    capture = _small_capture()
    with temporary_folder() as folder:
        path = store(capture, analyze(attribute(capture)), folder / "small.gpuprof")
        return {
            str(file.relative_to(path)): file.read_bytes()
            for file in sorted(path.rglob("*"))
            if file.is_file()
        }


def _write_capture(chance: random.Random, folder: Path) -> Path:
    path = folder / "small.gpuprof"
    (path / "rank=0").mkdir(parents=True)
    files = dict(_stored_capture())
    for _ in range(chance.choice((1, 1, 2))):
        name = chance.choice(sorted(files))
        if chance.random() >= AWARE:
            files[name] = damaged_bytes(chance, files[name])
        elif name.endswith(".json"):
            try:
                files[name] = damaged_json(chance, files[name])
            except ValueError:
                files[name] = damaged_bytes(chance, files[name])
        else:
            files[name] = _damaged_parquet(chance, files[name])
    # Else every command would stop at the analysis.
    if chance.random() < 0.5:
        del files["analysis.json"]
    for name, content in files.items():
        (path / name).write_bytes(content)
    return path


def _damaged_parquet(chance: random.Random, content: bytes) -> bytes:
    buffer = io.BytesIO()
    try:
        damaged_frame(chance, pl.read_parquet(io.BytesIO(content))).write_parquet(buffer)
    except (pl.exceptions.PolarsError, OSError):
        return damaged_bytes(chance, content)
    return buffer.getvalue()


def _read_capture(path: Path) -> None:
    read_stored_analysis(path)
    storage.load(path)


def _use_capture(path: Path, folder: Path) -> Sequence[Sequence[object]]:
    return (
        ("summary", path),
        ("summary", path, "--markdown"),
        ("report", path, "-o", folder / "page.html", "--force"),
        ("report", path, "-o", folder / "page.md", "--force"),
        ("compare", path, path),
        ("export", path, "-o", folder / "tables"),
        ("explain", path, "mm"),
        ("mfu", path, "--params", "100k"),
        ("summary", path, "--json"),
    )


def _write_ranks(chance: random.Random, folder: Path) -> Path:
    """A capture with summaries of a job's ranks, of which the summaries are damaged."""
    path = folder / "job.gpuprof"
    (path / "rank=0").mkdir(parents=True)
    for name, content in _stored_capture().items():
        if name != "analysis.json":
            (path / name).write_bytes(content)
    write_job(chance, path)
    return path


def _read_ranks(path: Path) -> None:
    use_job(path, storage.load(path))


def _use_ranks(path: Path, folder: Path) -> Sequence[Sequence[object]]:
    return (
        ("summary", path),
        ("report", path, "-o", folder / "page.html", "--force"),
        ("report", path, "--rank", "1", "-o", folder / "page.md", "--force"),
    )


def _gate_results(path: Path, folder: Path) -> Sequence[Sequence[object]]:
    sides = result_files(folder)
    given = ("--base", *sides["base"], "--head", *sides["head"])
    return (("gate", "results", *given, "-o", folder / "verdicts"),)


@lru_cache(maxsize=1)
def _gate() -> Any:
    judged = gate_result({"train": 1.2, "infer": 1.0})
    recorded = recorded_gate(1e6, 1.1e6, 1.2e6, 1e6, 1.05e6, commit="abc")
    return msgspec.structs.replace(recorded, judgements=judged.judgements)


_TRAIN: Final = Target(name="train", script="train.py")


def _use_baseline(path: Path) -> None:
    stored_side(read_baseline(path), (_TRAIN,), RuleSettings())


def _baseline() -> list[bytes]:
    return [msgspec.json.encode(baseline_of(_gate(), "main", (_TRAIN,)))]


@lru_cache(maxsize=1)
def _history() -> bytes:
    with temporary_folder() as folder:
        file = folder / "history.sqlite"
        for day in range(6):
            times = [1e6 * (1 + 0.3 * (day > 3)) * (1 + pair / 100) for pair in range(3)]
            History(file).add(values_of(recorded_gate(*times, created_ns=day * 86400 * 10**9)))
        # What another program may do to it, constraints do not stop.
        connection = sqlite3.connect(file)
        connection.executescript(
            "DROP TRIGGER no_update; DROP TRIGGER no_delete;"
            "CREATE TABLE copy AS SELECT * FROM measurements;"
            "DROP TABLE measurements; ALTER TABLE copy RENAME TO measurements;"
        )
        connection.close()
        return file.read_bytes()


def _write_history(chance: random.Random, folder: Path) -> Path:
    path = folder / "history.sqlite"
    path.write_bytes(_history())
    _damage_database_file(chance, path)
    return path


def _damage_database_file(chance: random.Random, path: Path) -> bool:
    """Damage its tables, or its bytes; whether it was the tables."""
    if chance.random() >= AWARE:
        path.write_bytes(damaged_bytes(chance, path.read_bytes()))
        return False
    connection = sqlite3.connect(path)
    with connection:
        damage_database(chance, connection)
    connection.close()
    return True


def _bench() -> list[bytes]:
    method = Method(
        clock="CUDA events", flushed_bytes=1, confidence=0.95, precision=0.005, budget_s=1, seed=0
    )
    cases = tuple(
        CaseResult(
            family="gemm", version=version, size="2048x11008x4096", dtype="fp16", flops=(),
            bytes_read=1 << 27, median_ns=300_000, lower_ns=299_000, upper_ns=301_000,
            samples_ns=(299_000, 300_000, 301_000), started_ns=1, ended_ns=10**7,
        )
        for version in ("cublas", "triton-tiled")
    )  # fmt: skip
    report = BenchReport(
        tool_version="1", created_ns=1, device=H100, fingerprint=Fingerprint(devices=(H100,)),
        method=method, cases=cases,
    )  # fmt: skip
    return [msgspec.json.encode(report)]


def _claims() -> list[bytes]:
    return [
        b"""source = "made up"
[[claim]]
name = "a product"
kind = "gemm"
gpu = "H100 SXM"
dtype = "fp16"
size = "2048x11008x4096"
time_us = 400
[[claim]]
name = "half of it"
kind = "gemm"
gpu = "H100 SXM"
dtype = "fp16"
size = "2048x5504x4096"
tflops = 300
"""
    ]


def _settings() -> list[bytes]:
    return [
        b"""[prices]
currency = "EUR"
device_hour = 2.5
[tools]
nsys = "/opt/nsys"
[gate]
alpha = "1%"
pairs = [5, 10]
cumulative = "3%"
[[target]]
name = "train"
script = "train.py"
arguments = ["--small"]
timeout_s = 60.0
[[budget]]
match = "train*"
time = {regress = "3%", max = "412 ms"}
peak_memory = {max = "1.5 GiB", level = "warn"}
kernels = {max_new = 2}
[[waiver]]
match = "train"
reason = "known"
expires = 2030-01-01
""",
        b"""[[device]]
name = "A card of ours"
patterns = ["card"]
memory_gib = [80]
source = "its data sheet"
dram_gb_per_s = 3350
[[device.peaks]]
unit = "tensor"
[device.peaks.tflops]
bf16 = 989.4
""",
    ]


def _read_settings(path: Path) -> None:
    configuration = read_configuration(path)
    suite_rules(configuration, str(path))
    distinct(configuration.target, str(path))


READERS: Final = {
    reader.name: reader
    for reader in (
        HostileReader(
            "kineto",
            damaged_file("trace.json", _kineto_traces, _damaged_trace, packed=0.2),
            _read_trace,
            _analyze,
        ),
        HostileReader(
            "flight-recorder",
            damaged_file("rank_1.json", _dumps, _damaged_dump),
            _read_trace,
            _analyze,
        ),
        HostileReader(
            "memory-snapshot",
            damaged_file("snapshot.pickle", _snapshots, damaged_pickle),
            _read_trace,
            _analyze,
        ),
        HostileReader(
            "nccl-log",
            damaged_file("train.log", nccl_logs, damaged_log, packed=0.1),
            _read_trace,
            _analyze,
        ),
        HostileReader("nsys", _write_nsys, _read_trace, _analyze),
        HostileReader(
            "ncu-csv",
            damaged_file("page.csv", _ncu_pages, damaged_csv, packed=0.1),
            _read_trace,
            _analyze,
        ),
        HostileReader(
            "ncu-rep",
            damaged_file("small.ncu-rep", _ncu_reports, damaged_bytes),
            _read_report,
            _analyze,
        ),
        HostileReader("capture", _write_capture, _read_capture, _use_capture),
        HostileReader("ranks", _write_ranks, _read_ranks, _use_ranks),
        HostileReader("results", write_results, judge_results, _gate_results),
        HostileReader("cache", write_cache, read_cache, lambda path, folder: ()),
        HostileReader(
            "baseline",
            damaged_file("main.json.gz", _baseline, damaged_json, packed=0.5),
            _use_baseline,
            lambda path, folder: (
                ("baseline", "list", "--folder", folder),
                ("baseline", "bless", "main", "--reason", "x", "--folder", folder),
            ),
        ),
        HostileReader(
            "gate",
            damaged_file("gate.json", lambda: [msgspec.json.encode(_gate())], damaged_json),
            lambda path: values_of(read_result(path)),
            lambda path, folder: (
                ("history", "add", path, "--db", folder / "history.sqlite"),
                ("baseline", "save", "it", "--from", path, "--folder", folder / "kept"),
            ),
        ),
        HostileReader(
            "history",
            _write_history,
            lambda path: series_of(History(path).values()),
            lambda path, folder: (
                ("history", "show", "--db", path),
                ("history", "plot", folder / "page.html", "--db", path),
                ("history", "export", folder / "rows.parquet", "--db", path),
            ),
        ),
        HostileReader(
            "bench",
            damaged_file("bench.json", _bench, damaged_json),
            read_bench,
            lambda path, folder: (("bench", "--claims", "public-articles", "--measured", path),),
        ),
        HostileReader(
            "claims",
            damaged_file("claims.toml", _claims, damaged_toml),
            lambda path: judge(load_table(str(path))),
            lambda path, folder: (("bench", "--claims", path),),
        ),
        HostileReader(
            "settings",
            damaged_file("gpuprof.toml", _settings, damaged_toml),
            _read_settings,
            lambda path, folder: (("gate", "plan", "--config", path),),
        ),
    )
}
