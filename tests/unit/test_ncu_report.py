"""Reports (.ncu-rep), and that they and the CSV pages of one run say the same."""

import csv
import gzip
import sys
from pathlib import Path

import polars as pl
import pytest

from gpuprof.collectors import ncu, nsys
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError, MissingDependencyError
from gpuprof.collectors.joining.captures import join
from gpuprof.collectors.joining.launch_keys import KEY, launch_keys
from gpuprof.collectors.ncu.units import base_unit
from gpuprof.collectors.opening import open_trace
from gpuprof.roofline.measured.counters import executed_by_launch

DATA = Path(__file__).resolve().parents[1] / "data"
SHARED = Path(__file__).resolve().parents[3] / "shared"
PAGES = ("raw", "raw_base", "details", "details_base")


def shared(*parts: str) -> Path:
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{'/'.join(parts)} is absent from ../shared")
    return path


def page(name: str) -> Path:
    """A CSV page of the run on an H200 whose report is h200_block_targeted.ncu-rep."""
    return DATA / "ncu" / f"h200_targeted_{name}.csv.gz"


def by_position(capture: Capture) -> pl.DataFrame:
    """Counters by the launch's position: the spelling of names differs between page and report."""
    keys = launch_keys(capture.kernels, capture.launches)
    return capture.counters.join(keys, on=list(KEY)).select("row", "metric", "value", "unit")


def printed_resolution(path: Path) -> dict[str, float]:
    """Half of the last digit that a page printed for each metric, in base units, at worst."""
    half: dict[str, float] = {}
    with gzip.open(path, "rt") as lines:
        rows = list(csv.DictReader(lines))
    if "Metric Value" in rows[0]:
        cells = [(row["Metric Name"], row["Metric Unit"], row["Metric Value"]) for row in rows]
    else:
        cells = [(name, rows[0][name], text) for row in rows[1:] for name, text in row.items()]
    for metric, unit, text in cells:
        digits = len(text.partition(".")[2])
        step = 0.5 * 10**-digits * float(base_unit(unit)[1])
        half[metric] = max(step, half.get(metric, 0.0))
    return half


@pytest.mark.parametrize("name", PAGES[1:])
def test_the_pages_of_one_run_agree_in_value_and_unit(name: str) -> None:
    assert_equal_as_printed(ncu.read(page("raw")), ncu.read(page(name)), "raw", name)


def assert_equal_as_printed(
    whole: Capture, part: Capture, *printed: str, metrics: int | None = None
) -> None:
    """Both have the metrics of `part`, equal up to the digits that the pages `printed` show."""
    both = by_position(part).join(by_position(whole), on=["row", "metric"], suffix="_whole")
    assert both.height == part.counters.height
    assert metrics is None or both["metric"].n_unique() == metrics
    assert both["unit"].equals(both["unit_whole"])
    apart = (pl.col("value") - pl.col("value_whole")).abs()
    for name in printed:
        resolution = printed_resolution(page(name))
        allowed = pl.col("metric").replace_strict(
            list(resolution), list(resolution.values()), default=0.0, return_dtype=pl.Float64
        )
        apart = apart - allowed
    assert both.filter(apart > pl.col("value").abs() * 1e-12).height == 0


@pytest.fixture(scope="module")
def report() -> Capture:
    pytest.importorskip("ncu_report", reason="ncu-report is not installed")
    return ncu.read(shared("data", "recordings", "h200_block_targeted.ncu-rep.gz"))


@pytest.mark.parametrize(
    ("name", "metrics"), [("raw", 132), ("raw_base", 132), ("details", 12), ("details_base", 12)]
)
def test_a_report_and_its_pages_are_equal_in_base_units(
    report: Capture, name: str, metrics: int
) -> None:
    assert_equal_as_printed(report, ncu.read(page(name)), name, metrics=metrics)


def test_a_report_and_its_page_give_the_same_kernels_and_work(report: Capture) -> None:
    read = ncu.read(page("raw_base"))
    columns = ["grid_x", "grid_y", "grid_z", "block_x", "registers", "shared_memory", "start_ns"]
    assert read.kernels.select(columns).equals(report.kernels.select(columns))
    assert read.processes[0].fingerprint == report.processes[0].fingerprint
    (device,) = report.processes[0].fingerprint.devices
    assert (device.name, device.maximum_memory_clock_mhz) == ("NVIDIA H200", 3201)
    for mine, theirs in zip(
        executed_by_launch(read.counters).values(),
        executed_by_launch(report.counters).values(),
        strict=True,
    ):
        assert mine.flops == theirs.flops
        assert mine.dram_bytes == theirs.dram_bytes
        assert mine.l2_bytes == theirs.l2_bytes


def test_a_page_joins_the_nsys_recording_though_it_spells_names_differently() -> None:
    profiled = ncu.read(page("raw_base"))
    recorded = nsys.read(DATA / "nsys" / "h200_block.sqlite.gz")
    assert not set(profiled.kernels["name"]) <= set(recorded.kernels["name"])
    joined = join([recorded, profiled])
    assert joined.counters.height == profiled.counters.height
    assert set(joined.counters["kernel"]) <= set(recorded.kernels["name"])
    # The first full step in order: the query-key-value, output and down projections.
    products = joined.counters.filter(
        pl.col("kernel").str.ends_with("coopA_TNT"),
        pl.col("metric") == "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
    ).sort("launch_index")
    assert products.select("launch_index", "value").rows() == [
        (3, 2.0 * 4096 * 4096 * 12288),
        (4, 2.0 * 4096 * 4096 * 4096),
        (5, 2.0 * 4096 * 11008 * 4096),
    ]


def test_without_ncu_report_the_pip_line_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    path = tmp_path / "run.ncu-rep"
    path.write_bytes(b"NVR\x00more")
    with pytest.raises(MissingDependencyError, match=r"pip install 'gpuprof-roofline\[ncu\]'"):
        ncu.read(path)


def zstd_frame(content: bytes) -> bytes:
    """`content` in a frame of zstd whose blocks are stored as they are (RFC 8878, 3.1.1)."""
    largest = 128 * 1024
    blocks = [content[at : at + largest] for at in range(0, len(content), largest)]
    headers = [
        (len(block) << 3 | (place == len(blocks) - 1)).to_bytes(3, "little")
        for place, block in enumerate(blocks)
    ]
    # No dictionary and no checksum; the content's size follows in eight bytes.
    start = b"\x28\xb5\x2f\xfd\xe0" + len(content).to_bytes(8, "little")
    return start + b"".join(part for pair in zip(headers, blocks, strict=True) for part in pair)


@pytest.mark.parametrize("name", ["run.ncu-repz", "run"])
def test_a_compressed_report_is_the_report(report: Capture, name: str, tmp_path: Path) -> None:
    plain = gzip.decompress(
        shared("data", "recordings", "h200_block_targeted.ncu-rep.gz").read_bytes()
    )
    path = tmp_path / name
    path.write_bytes(zstd_frame(plain))
    compressed = open_trace(path)
    assert compressed.counters.equals(report.counters)
    assert compressed.kernels.equals(report.kernels)


def test_what_else_is_compressed_with_zstd_is_told_how_to_unpack(tmp_path: Path) -> None:
    pytest.importorskip("ncu_report", reason="ncu-report is not installed")
    path = tmp_path / "trace.json.zst"
    path.write_bytes(zstd_frame(b'{"traceEvents": []}'))
    with pytest.raises(CaptureError, match="compressed with zstd, and no complete") as caught:
        open_trace(path)
    assert "zstd -d" in str(caught.value)


@pytest.mark.parametrize("name", ["empty.ncu-rep", "garbage.ncu-rep"])
def test_the_shared_cases_that_are_no_reports_are_refused(name: str) -> None:
    with pytest.raises(CaptureError, match="not a report of Nsight Compute"):
        ncu.read(shared("cases", "ncu-no-permission", name))


@pytest.mark.parametrize("size", [64, 100_000])
def test_a_cut_off_report_is_refused(tmp_path: Path, size: int) -> None:
    pytest.importorskip("ncu_report", reason="ncu-report is not installed")
    whole = gzip.decompress(
        shared("data", "recordings", "h200_block_targeted.ncu-rep.gz").read_bytes()
    )
    path = tmp_path / "cut.ncu-rep"
    path.write_bytes(whole[:size])
    with pytest.raises(CaptureError, match="holds no results"):
        ncu.read(path)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import os\n    os.abort()", "it ends ncu-report \\(SIGABRT\\)"),
        ("raise TypeError('argument 2\\n' * 9)", "could not read it \\(argument 2\\)"),
        ("print('noise')\n    return Empty()", "the report holds no results"),
    ],
)
def test_what_the_package_does_to_its_process_is_an_error(
    tmp_path: Path, body: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = "class Empty:\n    def num_ranges(self):\n        return 0\n"
    (tmp_path / "ncu_report.py").write_text(f"{empty}def load_report(file):\n    {body}\n")
    monkeypatch.delitem(sys.modules, "ncu_report", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "run.ncu-rep"
    path.write_bytes(b"NVR\x00more")
    with pytest.raises(CaptureError, match=said):
        ncu.read(path)
