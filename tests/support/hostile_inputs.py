"""Every reader of a file, with good inputs of its own to damage, and what people do with them.

The end of any input is what was read, or one line that says what is wrong.
"""

import gzip
import io
import random
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import msgspec
import polars as pl
from capture_builder import H100, CaptureBuilder
from made_up_pages import gate_result
from mutations import (
    damage_database,
    damaged_bytes,
    damaged_csv,
    damaged_frame,
    damaged_json,
    damaged_toml,
)
from nsys_exports import write_export
from recorded_gate import recorded_gate

from gpuprof.collectors import storage
from gpuprof.collectors.errors import GpuprofError, describe
from gpuprof.collectors.files import source
from gpuprof.collectors.kineto import blocks
from gpuprof.collectors.manifest import Fingerprint
from gpuprof.collectors.opening import open_trace
from gpuprof.profiler import cli
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
LONGEST_LINE: Final = 300
# Of inputs, those that are damaged with a look at what they hold.
_AWARE: Final = 0.7
_Damage = Callable[[random.Random, bytes], bytes]


@dataclass(frozen=True)
class HostileReader:
    """One reader. `write` makes a damaged input in an empty folder, `read` is what reads it."""

    name: str
    write: Callable[[random.Random, Path], Path]
    read: Callable[[Path], object]
    # The command lines that read such a file; they may write into the folder.
    commands: Callable[[Path, Path], Sequence[Sequence[object]]]


class Refused(Exception):
    """The line that a reader ended with."""


def read_damaged(reader: HostileReader, number: int, folder: Path) -> str:
    """Read the input with this number; returns the line it was refused with, or "".

    Raises `AssertionError` where that is no one printable line, and whatever else escapes.
    """
    path = reader.write(random.Random(f"{reader.name} {number}"), folder)
    try:
        with _small_blocks():
            reader.read(path)
    except GpuprofError as error:
        _check_line(describe(error), path)
        return str(error)
    return ""


def run_commands(reader: HostileReader, number: int, folder: Path) -> int:
    """Give the input with this number to the commands that read such; how many could use it."""
    path = reader.write(random.Random(f"{reader.name} {number}"), folder)
    used = 0
    for command in reader.commands(path, folder):
        code, output, said = run_command([str(word) for word in command])
        _check_printable(output)
        _check_printable(said)
        if code:
            *_, last = said.splitlines()
            assert last.startswith("gpuprof: "), said[-500:]
            _check_line(last, path)
        used += code == 0
    return used


def run_command(command: list[str]) -> tuple[int, str, str]:
    """The exit code of a command in this process, and what it wrote on stdout and stderr."""
    output, said = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with redirect_stdout(output), redirect_stderr(said), _small_blocks():
        code = cli.main(command)
    texts = []
    for stream in (output, said):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    return code, *texts


def _check_line(line: str, path: Path) -> None:
    assert line.isprintable(), ascii(line[:500])
    # Where the file is does not count.
    assert len(line.replace(str(path), "")) <= LONGEST_LINE, line[:1000]


def _check_printable(text: str) -> None:
    for line in text.splitlines():
        assert (
            line.replace("\N{NARROW NO-BREAK SPACE}", "")
            .replace("\N{NO-BREAK SPACE}", "")
            .isprintable()
        ), ascii(line)


@contextmanager
def _small_blocks() -> Iterator[None]:
    """Small traces are cut into blocks as large ones are."""
    with (
        patch.object(blocks, "BLOCK_BYTES", 3000),
        patch.object(blocks, "_LONGEST_PLAUSIBLE", 1 << 16),
        patch.object(source, "PIECE_BYTES", 1000),
    ):
        yield


def _damaged_file(
    name: str, contents: Callable[[], Sequence[bytes]], aware: _Damage, *, packed: float = 0.0
) -> Callable[[random.Random, Path], Path]:
    """Writes one of `contents`, damaged, as a file called `name`; some of them compressed."""
    originals = lru_cache(maxsize=1)(contents)

    def write(chance: random.Random, folder: Path) -> Path:
        content = chance.choice(originals())
        is_aware = chance.random() < _AWARE
        content = (aware if is_aware else damaged_bytes)(chance, content)
        if chance.random() < packed:
            content = gzip.compress(content, 1, mtime=0)
            if not is_aware and chance.random() < 0.3:
                content = damaged_bytes(chance, content)
        path = folder / name
        path.write_bytes(content)
        return path

    return write


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
    with _temporary() as folder:
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
    return [(DATA / "flight_recorder" / "rank_1.json").read_bytes()]


def _snapshots() -> list[bytes]:
    folder = DATA / "memory_snapshot"
    return [gzip.decompress((folder / "training_step.pickle.gz").read_bytes())]


def _ncu_reports() -> list[bytes]:
    return [gzip.decompress((DATA / "ncu" / "h200_two_launches.ncu-rep.gz").read_bytes())]


# -- what gpuprof itself wrote ---------------------------------------------------------------------


@lru_cache(maxsize=1)
def _stored_capture() -> dict[str, bytes]:
    """The files of a capture by name."""
    capture = _small_capture()
    with _temporary() as folder:
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
        if chance.random() >= _AWARE:
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
    )


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
    with _temporary() as folder:
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
    if chance.random() >= _AWARE:
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


@contextmanager
def _temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


READERS: Final = {
    reader.name: reader
    for reader in (
        HostileReader(
            "kineto",
            _damaged_file("trace.json", _kineto_traces, _damaged_trace, packed=0.2),
            _read_trace,
            _analyze,
        ),
        HostileReader(
            "flight-recorder",
            _damaged_file("rank_1.json", _dumps, damaged_json),
            _read_trace,
            _analyze,
        ),
        HostileReader(
            "memory-snapshot",
            _damaged_file("snapshot.pickle", _snapshots, damaged_bytes),
            _read_trace,
            _analyze,
        ),
        HostileReader("nsys", _write_nsys, _read_trace, _analyze),
        HostileReader(
            "ncu-csv",
            _damaged_file("page.csv", _ncu_pages, damaged_csv, packed=0.1),
            _read_trace,
            _analyze,
        ),
        HostileReader(
            "ncu-rep",
            _damaged_file("small.ncu-rep", _ncu_reports, damaged_bytes),
            _read_trace,
            _analyze,
        ),
        HostileReader("capture", _write_capture, _read_capture, _use_capture),
        HostileReader(
            "baseline",
            _damaged_file("main.json.gz", _baseline, damaged_json, packed=0.5),
            _use_baseline,
            lambda path, folder: (
                ("baseline", "list", "--folder", folder),
                ("baseline", "bless", "main", "--reason", "x", "--folder", folder),
            ),
        ),
        HostileReader(
            "gate",
            _damaged_file("gate.json", lambda: [msgspec.json.encode(_gate())], damaged_json),
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
            _damaged_file("bench.json", _bench, damaged_json),
            read_bench,
            lambda path, folder: (("bench", "--claims", "public-articles", "--measured", path),),
        ),
        HostileReader(
            "claims",
            _damaged_file("claims.toml", _claims, damaged_toml),
            lambda path: judge(load_table(str(path))),
            lambda path, folder: (("bench", "--claims", path),),
        ),
        HostileReader(
            "settings",
            _damaged_file("gpuprof.toml", _settings, damaged_toml),
            _read_settings,
            lambda path, folder: (("gate", "plan", "--config", path),),
        ),
    )
}
