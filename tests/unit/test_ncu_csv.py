import csv
import gzip
from pathlib import Path

import polars as pl
import pytest

from gpuprof.collectors import ncu
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.ncu.csv_page import details_labels
from gpuprof.collectors.ncu.units import base_unit

DATA = Path(__file__).resolve().parents[1] / "data" / "ncu"
SHARED = Path(__file__).resolve().parents[3] / "shared"
RAW = DATA / "h100_ops_raw.csv.gz"
DETAILS = DATA / "h100_ops_details.csv.gz"

DETAILS_HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)


def shared(*parts: str) -> Path:
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{'/'.join(parts)} is absent from ../shared")
    return path


def detail(identifier: int, metric: str, unit: str, value: str, process: int = 1) -> str:
    return (
        f'"{identifier}","{process}","python","host","gemm","1","7","(256, 1, 1)","(4, 1, 1)","0",'
        f'"9.0","Section","{metric}","{unit}","{value}"'
    )


def read_lines(tmp_path: Path, *lines: str) -> Capture:
    path = tmp_path / "report.csv"
    path.write_text("\n".join(lines) + "\n")
    return ncu.read(path)


def values(capture: Capture) -> dict[str, tuple[float, str]]:
    rows = capture.counters.select("metric", "value", "unit").iter_rows()
    return {metric: (value, unit) for metric, value, unit in rows}


@pytest.mark.parametrize("name", ["en", "de", "base-units", "raw-page"])
def test_the_shared_case_reads_the_same_in_every_spelling(name: str) -> None:
    capture = ncu.read(shared("cases", "ncu-csv-locale", f"{name}.csv"))
    found = values(capture)
    expected = {
        "gpu__time_duration.sum": (1_234_560, "ns"),
        "dram__bytes_read.sum": (2_048_500_000, "byte"),
        "dram__bytes_write.sum": (512_000, "byte"),
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum": (1_099_511_627_776, ""),
        "sm__cycles_elapsed.avg.per_second": (1_110_000_000, "hz"),
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": (71.2, "%"),
    }
    present = {
        "base-units": list(expected)[:2] + list(expected)[3:4],
        "raw-page": list(expected)[:3],
    }.get(name, list(expected))
    # In each spelling n/a is missing, not 0.
    assert found == {metric: expected[metric] for metric in present}
    assert capture.kernels.select("name", "start_ns", "end_ns").row(0) == (
        "gemm_kernel",
        0,
        1234560,
    )
    if "sm__ops_path_tensor_src_bf16_dst_fp32.sum" in found:
        tflops = 1_099_511_627_776 / found["gpu__time_duration.sum"][0] / 1000
        assert round(tflops, 1) == 890.6


def test_the_pages_of_one_run_agree_as_far_as_they_print_digits() -> None:
    raw, details = (
        ncu.read(path).counters.with_columns(pl.col("value").alias(which))
        for path, which in ((RAW, "raw"), (DETAILS, "details"))
    )
    key = ["kernel", "grid", "block", "launch_index", "metric", "unit"]
    both = raw.join(details, on=key)
    mapped = set(details_labels().values())
    assert set(both["metric"]) == mapped
    assert both.height == 30 * len(mapped)
    resolution = printed_resolution()
    apart = (pl.col("raw") - pl.col("details")).abs()
    limit = pl.col("metric").replace_strict(resolution, return_dtype=pl.Float64)
    assert both.filter(apart > limit * 1.000001).height == 0
    exact = both.filter(pl.col("unit").is_in(["inst", "thread", "register/thread", "block"]))
    assert exact.filter(pl.col("raw").round(2) != pl.col("details")).height == 0


def printed_resolution() -> dict[str, float]:
    """Half of the last digit, in base units, that either page printed for a metric."""
    half: dict[str, float] = {}
    with gzip.open(DETAILS, "rt") as lines:
        for row in csv.DictReader(lines):
            metric = details_labels().get((row["Section Name"], row["Metric Name"]))
            if metric:
                digit = 0.005 if "." in row["Metric Value"] else 0.5
                step = digit * float(base_unit(row["Metric Unit"])[1])
                half[metric] = max(step, half.get(metric, 0.0))
    with gzip.open(RAW, "rt") as lines:
        header, units, *_ = csv.reader(lines)
    for metric, unit in zip(header, units, strict=True):
        half[metric] = half.get(metric, 0.0) + 5e-7 * float(base_unit(unit)[1])
    return half


def test_the_whole_raw_page_holds_the_reduced_one() -> None:
    whole = ncu.read(shared("data", "recordings", "h100_ops_ncu_raw.csv.gz")).counters
    reduced = ncu.read(RAW).counters
    assert whole.height > 60_000
    assert reduced.join(whole, on=reduced.columns, nulls_equal=True, how="anti").height == 0


def test_kernels_are_in_launch_order_with_their_configuration() -> None:
    capture = ncu.read(RAW)
    assert capture.kernels.height == 30
    gemm = capture.kernels.row(2, named=True)
    assert gemm["name"] == "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
    assert (gemm["grid_x"], gemm["grid_y"], gemm["block_x"]) == (2, 66, 384)
    assert gemm["end_ns"] - gemm["start_ns"] == 175_776
    assert capture.kernels["start_ns"].to_list()[1:] == capture.kernels["end_ns"].to_list()[:-1]
    (device,) = capture.processes[0].fingerprint.devices
    assert (device.name, device.multiprocessors) == ("NVIDIA H100 80GB HBM3", 132)
    assert device.compute_capability == "9.0"
    assert device.maximum_sm_clock_mhz == 1980


def test_equal_launches_are_told_apart_by_their_index(tmp_path: Path) -> None:
    capture = read_lines(
        tmp_path,
        DETAILS_HEADER,
        *(detail(number, "gpu__time_duration.sum", "ns", f"{100 + number}") for number in (4, 9)),
    )
    assert capture.counters.select("launch_index", "value").rows() == [(0, 104.0), (1, 109.0)]
    assert set(capture.counters["grid"]) == {"(4, 1, 1)"}
    assert set(capture.counters["block"]) == {"(256, 1, 1)"}


def test_other_people_s_details_page_is_read() -> None:
    capture = ncu.read(shared("data", "public", "ncu", "nsightful_copy_blocked.csv"))
    assert capture.kernels.height == 1
    found = values(capture)
    assert found["gpu__time_duration.sum"] == (21_058_944, "ns")
    assert found["dram__cycles_elapsed.avg.per_second"] == (4_963_609_951.19, "hz")


def test_lines_printed_among_the_rows_are_passed_over(tmp_path: Path) -> None:
    capture = read_lines(
        tmp_path,
        "step 0, loss 1,234",
        "==WARNING== Clocks could not be locked.",
        DETAILS_HEADER,
        detail(0, "gpu__time_duration.sum", "us", "1.5"),
        "==PROF== Disconnected from process 1",
        "done",
        detail(1, "gpu__time_duration.sum", "us", "2.5"),
    )
    assert capture.counters["value"].to_list() == [1500.0, 2500.0]
    assert capture.processes[0].warnings[1:] == ("Nsight Compute: Clocks could not be locked.",)


def test_a_second_header_begins_a_new_table(tmp_path: Path) -> None:
    capture = read_lines(
        tmp_path,
        '"ID","Kernel Name","gpu__time_duration.sum"',
        '"","","us"',
        '"0","first","1.5"',
        '"ID","Kernel Name","dram__bytes_read.sum"',
        '"","","Kbyte"',
        '"0","second","2.5"',
    )
    assert capture.counters.select("kernel", "metric", "value").rows() == [
        ("first", "gpu__time_duration.sum", 1500.0),
        ("second", "dram__bytes_read.sum", 2500.0),
    ]


def test_a_cut_off_row_is_left_out_and_counted(tmp_path: Path) -> None:
    capture = read_lines(
        tmp_path,
        '"ID","Kernel Name","gpu__time_duration.sum","dram__bytes_read.sum"',
        '"","","us","Kbyte"',
        '"0","gemm","1.5","7"',
        '"1","gemm","2.5"',
    )
    assert capture.kernels.height == 1
    assert any(text.startswith("1 rows") for text in capture.processes[0].warnings)


def test_processes_are_ranks_in_the_order_of_their_ids(tmp_path: Path) -> None:
    capture = read_lines(
        tmp_path,
        DETAILS_HEADER,
        detail(0, "gpu__time_duration.sum", "ns", "5", process=20),
        detail(1, "gpu__time_duration.sum", "ns", "6", process=10),
    )
    assert [(p.rank, p.process, p.world_size) for p in capture.processes] == [
        (0, 10, 2),
        (1, 20, 2),
    ]
    assert capture.counters.select("rank", "value").rows() == [(1, 5.0), (0, 6.0)]


def test_communication_is_told_by_name(tmp_path: Path) -> None:
    row = detail(0, "gpu__time_duration.sum", "ns", "5")
    capture = read_lines(
        tmp_path,
        DETAILS_HEADER,
        row.replace("gemm", "void vllm::cross_device_reduce_1stage<float>"),
    )
    assert capture.kernels.select("kind", "collective").rows() == [("collective", "allreduce")]


def test_values_that_cannot_be_are_missing(tmp_path: Path) -> None:
    capture = read_lines(
        tmp_path,
        DETAILS_HEADER,
        detail(0, "gpu__time_duration.sum", "s", "1e9"),
        detail(0, "dram__bytes_read.sum", "Gbyte", "1e999"),
        detail(1, "gpu__time_duration.sum", "ns", "7"),
    )
    assert capture.counters["metric"].to_list() == ["gpu__time_duration.sum"] * 2
    assert capture.kernels.select("start_ns", "end_ns").rows() == [(None, None), (0, 7)]


def test_a_file_that_powershell_redirected_is_read(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    path.write_bytes(
        f"{DETAILS_HEADER}\r\n{detail(0, 'gpu__time_duration.sum', 'ns', '5')}\r\n".encode("utf-16")
    )
    assert ncu.read(path).counters["value"].to_list() == [5.0]


def test_missing_permission_is_explained_with_the_fix() -> None:
    with pytest.raises(CaptureError) as caught:
        ncu.read(shared("cases", "ncu-no-permission", "out.csv"))
    for part in ("ERR_NVGPUCTRPERM", "NVreg_RestrictProfilingToAdminUsers=0", "CAP_SYS_ADMIN"):
        assert part in str(caught.value)


def test_no_kernels_is_an_error_and_not_an_empty_capture(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no kernels profiled"):
        ncu.read(shared("cases", "ncu-no-permission", "no-kernels.csv"))
    with pytest.raises(CaptureError, match="no kernels profiled"):
        read_lines(tmp_path, DETAILS_HEADER)


def test_another_reason_of_ncu_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="ncu said: Failed to prepare kernel"):
        read_lines(tmp_path, "==ERROR== Failed to prepare kernel for profiling")


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "\x00\x01\x02", '"ID","Metric Name"\n'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.csv"
    path.write_text(text)
    with pytest.raises(CaptureError, match="no CSV of Nsight Compute"):
        ncu.read(path)


def test_a_field_without_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="damaged CSV"):
        read_lines(tmp_path, DETAILS_HEADER, '"0","' + "x" * 200_000)


@pytest.mark.parametrize(
    ("unit", "base", "factor"),
    [
        ("usecond", "ns", 1e3),
        ("us", "ns", 1e3),
        ("s", "ns", 1e9),
        ("Kbyte", "byte", 1e3),
        ("Tbyte/s", "byte/s", 1e12),
        ("cycle/nsecond", "hz", 1e9),
        ("1/ns", "hz", 1e9),
        ("Ghz", "hz", 1e9),
        ("sector/us", "sector/s", 1e6),
        ("Kbyte/block", "byte/block", 1e3),
        ("%/Kbyte", "%/byte", 1e-3),
        ("byte/cycle", "byte/cycle", 1),
        ("register/thread", "register/thread", 1),
        ("%", "%", 1),
        ("", "", 1),
    ],
)
def test_units_become_base_units(unit: str, base: str, factor: float) -> None:
    found, times = base_unit(unit)
    assert (found, float(times)) == (base, factor)
