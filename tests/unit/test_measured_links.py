"""Collectives as calibrate measured them: what a message takes, and shares of it in a report."""

import msgspec
import pytest
from capture_builder import H100, CaptureBuilder

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.link_calibration import CollectiveTimes, LinkCalibration
from gpuprof.collectors.manifest import Fingerprint, ProcessInfo
from gpuprof.profiler.cli import main
from gpuprof.profiler.machine.link_calibration_cache import (
    link_cache_file,
    load_links,
    store_links,
)
from gpuprof.reports.markdown import render_markdown
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.machine.measured_links import find_times, time_of

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SIZES = tuple(4096 * 4**power for power in range(9))


def times(collective: str, ranks: int, algorithm: str = "", slower: float = 1.0) -> CollectiveTimes:
    """10 µs and 300 GB/s."""
    return CollectiveTimes(
        collective=collective,
        backend="nccl",
        ranks=ranks,
        hosts=1,
        algorithm=algorithm,
        times=tuple((size, slower * (10_000.0 + size / 300)) for size in SIZES),
        repeats=15,
        spread=0.01,
        measured_ns=1,
    )


CALIBRATION = LinkCalibration(
    device=H100.name,
    torch="2.11.0",
    library="NCCL 2.28.9",
    collectives=(times("all-reduce", 2), times("all-reduce", 4), times("all-reduce", 4, "tree", 3)),
)


def test_between_sizes_a_time_is_between_theirs() -> None:
    found = find_times(CALIBRATION, "all-reduce", 4)
    assert found is not None
    for size, ns in found.times:
        assert time_of(found, size) == pytest.approx(ns)
    # A line through logarithms: at the geometric mean of two sizes that of their times.
    (low, low_ns), (high, high_ns) = found.times[3], found.times[4]
    middle = time_of(found, 2 * low)
    assert middle == pytest.approx((low_ns * high_ns) ** 0.5)
    assert low < 2 * low < high
    # Latency below, the largest's bandwidth above.
    assert time_of(found, 8) == found.times[0][1]
    largest, largest_ns = found.times[-1]
    assert time_of(found, 3 * largest) == pytest.approx(3 * largest_ns)


def test_only_the_same_collective_of_as_many_ranks_is_compared() -> None:
    tree = CALIBRATION.collectives[2]
    assert find_times(CALIBRATION, "all-reduce", 4) != tree
    assert find_times(CALIBRATION, "all-reduce", 3) is None
    assert find_times(CALIBRATION, "all-gather", 4) is None
    assert find_times(None, "all-reduce", 4) is None
    assert find_times(CALIBRATION, "all-reduce", 4, backend="gloo") is None


def analysed(build: CaptureBuilder, *, ranks: int = 4, devices: int = 4, message: int) -> object:
    build.kernel(
        0,
        0,
        1_000_000,
        ALL_REDUCE,
        kind="collective",
        stream=20,
        collective="allreduce",
        message_bytes=message,
        group_size=ranks,
        group="0",
    )
    capture = build.build()
    (process,) = capture.processes
    process = msgspec.structs.replace(
        process,
        world_size=ranks,
        fingerprint=Fingerprint(devices=(H100,) * devices),
        link_calibration=CALIBRATION,
    )
    return analyze(Capture(capture.manifest, (process,), **capture.tables()))


def test_a_collective_is_compared_with_what_this_link_does_at_its_size(
    build: CaptureBuilder,
) -> None:
    analysis = analysed(build, message=64 * 2**20)
    (transfer,) = analysis.transfers  # type: ignore[attr-defined]
    # 10 µs and 64 MiB at 300 GB/s, of the 1 ms that it took.
    expected_ns = 10_000 + 64 * 2**20 / 300
    assert transfer.measured_ns == pytest.approx(expected_ns, abs=1)
    assert transfer.measured_fraction == pytest.approx(expected_ns / 1e6, rel=1e-4)
    said = f"{expected_ns / 1e6:.0%} of what this link does at 67.1 MB"
    (point,) = analysis.kernels  # type: ignore[attr-defined]
    assert said in point.bottleneck.evidence
    page = render_markdown(analysis)  # type: ignore[arg-type]
    assert "Of what it does" in page
    assert f"{expected_ns / 1e4:.1f}%" in page


@pytest.mark.parametrize(("ranks", "devices"), [(4, 2), (3, 4)])
def test_on_other_links_nothing_is_compared(
    build: CaptureBuilder, ranks: int, devices: int
) -> None:
    analysis = analysed(build, ranks=ranks, devices=devices, message=64 * 2**20)
    (transfer,) = analysis.transfers  # type: ignore[attr-defined]
    assert transfer.measured_ns is None
    assert transfer.measured_fraction is None


def test_what_is_kept_grows_by_numbers_of_ranks(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert load_links(H100.name, "2.11.0") is None
    store_links(CALIBRATION)
    faster = times("all-reduce", 4, slower=0.5)
    store_links(msgspec.structs.replace(CALIBRATION, collectives=(times("all-reduce", 8), faster)))
    found = load_links(H100.name, "2.11.0")
    assert found is not None
    assert {(one.ranks, one.algorithm) for one in found.collectives} == {
        (2, ""),
        (4, ""),
        (8, ""),
        (4, "tree"),
    }
    assert find_times(found, "all-reduce", 4) == faster
    assert load_links(H100.name, "2.12.0") is None
    # A damaged file is no calibration.
    link_cache_file(H100.name, "2.11.0").write_bytes(b"{")
    assert load_links(H100.name, "2.11.0") is None


def test_processes_of_older_captures_have_none() -> None:
    assert msgspec.json.decode(b"{}", type=ProcessInfo).link_calibration is None


def test_ranks_that_cannot_meet_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    for name, value in (("WORLD_SIZE", "2"), ("RANK", "0"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    assert main(["calibrate", "--device", "cpu"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("gpuprof: collectives cannot be measured: ")
    assert "MASTER_ADDR" in told
    assert told.count("\n") == 1
    assert main(["calibrate", "--device", "cuda:0"]) == 2
    assert "under torchrun each rank has a GPU" in capsys.readouterr().err
