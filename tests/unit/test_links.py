"""What collectives do over all ranks: transfers, waiting, bandwidths, lines, and what is measured.

Times are made here from an alpha and a beta, and waits that differ by rank.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import polars as pl
import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors.link_calibration import CollectiveTimes, LinkCalibration
from gpuprof.collectors.opening import open_traces
from gpuprof.reports.markdown import render_markdown
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.link_figures import CollectiveGroup, LinkFigures
from gpuprof.roofline.nccl_figures import LoggedAlgorithm, LoggedCommunicator, NcclFigures
from gpuprof.roofline.ranks.instances import instances
from gpuprof.roofline.ranks.links import link_figures
from gpuprof.roofline.ranks.summarise import summarise
from gpuprof.roofline.ranks.summary import COLLECTIVES, RankProcess, RankSummary

RECORDINGS = Path(__file__).parents[3] / "shared" / "data" / "recordings"
RING = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
TWO_SHOT = "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<float, 16, 2>()"
ALPHA_NS, NS_PER_BYTE = 20_000, 1 / 200
SIZES = tuple(2**14 * 4**power for power in range(6))
H200 = "NVIDIA H200"


def ns_of(size: int, ranks: int) -> int:
    """A ring's: hops and bytes of an all-reduce among `ranks`."""
    return round(2 * (ranks - 1) * ALPHA_NS + 2 * (ranks - 1) / ranks * size * NS_PER_BYTE)


def summaries(
    ranks: int,
    *,
    groups: Sequence[tuple[str, int]] = (("0", 4),),
    collective: str = "allreduce",
    name: str = RING,
    hosts: Sequence[str | None] = ("a",) * 8,
    exposed: float = 0.25,
) -> list[RankSummary]:
    """Ranks that come to each collective of `SIZES` 1, 2, 3 µs late, in two steps."""
    found = []
    for rank in range(ranks):
        rows = []
        for step in (5, 6):
            for group, members in groups:
                for index, size in enumerate(SIZES):
                    if rank >= members:
                        continue
                    end = 10**9 * (step + 1) + 10**7 * index + 10**5 * members
                    waits = 1000 * (members - 1 - rank)
                    duration = ns_of(size, members) + waits
                    rows.append(
                        {
                            "step": step,
                            "group": group,
                            "group_size": members,
                            "sequence": 100 * step + index,
                            "collective": collective,
                            "message_bytes": size,
                            "name": name,
                            "kernel_row": len(rows),
                            "start_ns": end - duration,
                            "end_ns": end,
                            "exposed_ns": round(exposed * duration),
                        }
                    )
        frame = pl.DataFrame(rows, schema=COLLECTIVES)
        process = RankProcess(
            rank=rank, world_size=ranks, device_name=H200, host=hosts[rank], on_cpu=False
        )
        found.append(RankSummary(process, collectives=frame))
    return found


def figures(found: list[RankSummary], calibration: LinkCalibration | None = None) -> LinkFigures:
    links = link_figures(found, instances(found), calibration)
    assert links is not None
    return links


def of_size(links: LinkFigures, size: int, ranks: int = 4) -> CollectiveGroup:
    (one,) = (
        each for each in links.groups if (each.message_bytes, each.group_size) == (size, ranks)
    )
    return one


def test_transfer_is_the_shortest_and_the_rest_is_waiting() -> None:
    links = figures(summaries(4))
    assert links.steps == 2
    assert len(links.groups) == len(SIZES)
    one = of_size(links, SIZES[3])
    expected_ns = ns_of(SIZES[3], 4)
    assert (one.collective, one.calls, one.hosts) == ("all-reduce", 2, 1)
    assert one.transfer_ns == expected_ns
    assert one.transfer_quartiles_ns == (expected_ns, expected_ns)
    # Ranks wait 3, 2, 1 and 0 µs: 1.5 in the mean.
    assert one.waiting_ns == 1500
    assert one.duration_ns == expected_ns + 1500
    assert one.exposed_ns == pytest.approx(0.25 * one.duration_ns, abs=1)
    assert one.overlapped_ns == one.duration_ns - one.exposed_ns
    # nccl-tests: the message over the time, times 2 (n - 1) / n.
    assert one.bytes_per_s == pytest.approx(SIZES[3] / expected_ns * 1e9)
    assert one.bus_bytes_per_s == pytest.approx(SIZES[3] / expected_ns * 1e9 * 1.5)
    assert (one.algorithm, one.compiled_for) == ("", "ring LL")
    # Largest first.
    assert [each.message_bytes for each in links.groups] == sorted(SIZES, reverse=True)


def test_alpha_and_beta_over_sizes_and_numbers_of_ranks() -> None:
    links = figures(summaries(4, groups=(("0", 4), ("1", 2))))
    lines = {(line.group_sizes, line.algorithm): line.fit for line in links.lines}
    assert set(lines) == {((2,), ""), ((4,), ""), ((2, 4), "ring"), ((2, 4), "tree")}
    whole = lines[(4,), ""]
    assert whole is not None
    assert whole.alpha_ns == pytest.approx(6 * ALPHA_NS, rel=1e-3)
    assert whole.bytes_per_s == pytest.approx(200e9 / 1.5, rel=1e-3)
    ring, tree = lines[(2, 4), "ring"], lines[(2, 4), "tree"]
    assert ring is not None
    assert tree is not None
    assert ring.alpha_ns == pytest.approx(ALPHA_NS, rel=1e-3)
    assert ring.bytes_per_s == pytest.approx(200e9, rel=1e-3)
    # The times are a ring's, and a tree's line does not fit them.
    assert ring.largest_error < 1e-3 < 0.05 < tree.typical_error


def test_few_sizes_have_no_line() -> None:
    found = [
        RankSummary(each.process, collectives=each.collectives.filter(pl.col("sequence") % 100 < 2))
        for each in summaries(4)
    ]
    (line,) = figures(found).lines
    assert line.fit is None
    assert line.reason.startswith("2 sizes")


def calibration(device: str = H200, hosts: int = 1) -> LinkCalibration:
    """Twice as fast as the collectives here."""
    times = CollectiveTimes(
        collective="all-reduce",
        backend="nccl",
        ranks=4,
        hosts=hosts,
        times=tuple((size, ns_of(size, 4) / 2) for size in SIZES),
        repeats=15,
        spread=0.0,
        measured_ns=1,
    )
    return LinkCalibration(device=device, torch="2.11.0", collectives=(times,))


def test_transfers_are_compared_with_what_was_measured() -> None:
    links = figures(summaries(4, groups=(("0", 4), ("1", 2))), calibration())
    for size in SIZES:
        one = of_size(links, size)
        assert one.measured_ns == pytest.approx(ns_of(size, 4) / 2, abs=1)
        assert one.measured_fraction == pytest.approx(0.5, rel=1e-4)
        # Of two ranks nothing was measured.
        assert of_size(links, size, 2).measured_fraction is None


@pytest.mark.parametrize(
    ("hosts", "device", "expected_hosts"),
    [
        (("a", "a", "b", "b"), H200, 2),
        (("a", "a", None, "a"), H200, None),
        (("a", "a", "a", "a"), "NVIDIA H100 80GB HBM3", 1),
    ],
)
def test_other_hosts_and_devices_are_not_compared(
    hosts: tuple[str | None, ...], device: str, expected_hosts: int | None
) -> None:
    links = figures(summaries(4, hosts=hosts), calibration(device))
    assert {one.hosts for one in links.groups} == {expected_hosts}
    assert {one.measured_fraction for one in links.groups} == {None}


def test_what_was_measured_over_two_hosts_is_for_two_hosts() -> None:
    for on in (("a", "a", "b", "b"), ("a", "a", "a", "a")):
        links = figures(summaries(4, hosts=on), calibration(hosts=2))
        known = [one.measured_fraction for one in links.groups if one.measured_fraction is not None]
        assert len(known) == (len(SIZES) if len(set(on)) == 2 else 0)
        assert known == pytest.approx([0.5] * len(known), rel=1e-3)


def test_as_many_devices_as_ranks_are_one_host() -> None:
    found = summaries(4, hosts=(None,) * 4)
    links = link_figures(found, instances(found), calibration(), one_host=True)
    assert links is not None
    assert {one.hosts for one in links.groups} == {1}
    assert {round(one.measured_fraction or 0, 3) for one in links.groups} == {0.5}


def test_ranks_that_do_different_things_have_no_transfer() -> None:
    links = figures(summaries(4, collective="broadcast"))
    for one in links.groups:
        assert (one.transfer_ns, one.waiting_ns, one.bus_bytes_per_s) == (None, None, None)
        assert one.duration_ns > 0
    assert links.lines == ()


def test_a_name_that_tells_its_algorithm_for_certain() -> None:
    links = figures(summaries(4, name=TWO_SHOT))
    assert {(one.algorithm, one.compiled_for) for one in links.groups} == {("two-shot", "")}


def test_the_log_of_nccl_tells_the_algorithm() -> None:
    chosen = LoggedAlgorithm(
        collective="all-reduce",
        message_bytes=SIZES[2],
        algorithm="NVLS",
        protocol="Simple",
        calls=2,
    )
    found = summaries(4, groups=(("0", 4), ("1", 2)))
    logged = NcclFigures(
        communicators=(LoggedCommunicator(size=4, ranks=(0, 1, 2, 3), chosen=(chosen,)),)
    )
    links = link_figures(found, instances(found), None, logged)
    assert links is not None
    told = {(one.message_bytes, one.group_size) for one in links.groups if one.algorithm}
    assert told == {(SIZES[2], 4)}
    assert of_size(links, SIZES[2]).algorithm == "NVLS Simple"


def test_without_collectives_there_are_none() -> None:
    found = summaries(4, groups=())
    assert link_figures(found, instances(found)) is None


@pytest.mark.skipif(not RECORDINGS.is_dir(), reason="../shared/data/recordings is not there")
def test_four_ranks_of_an_h200_recording() -> None:
    """Beside a calculation of its own: times by order in the trace, for each message."""
    capture = open_traces(sorted(RECORDINGS.glob("h200x4_ddp_rank*.json.gz")))
    links = figures([summarise(capture, rank) for rank in capture.manifest.ranks])
    rows = capture.kernels.filter(pl.col("message_bytes").is_not_null()).sort("rank", "start_ns")
    for one in links.groups:
        of_size = rows.filter(pl.col("message_bytes") == one.message_bytes)
        durations = [
            (each["end_ns"] - each["start_ns"]).to_list()
            for _, each in of_size.group_by("rank", maintain_order=True)
        ]
        shortest = sorted(min(ranks) for ranks in zip(*durations, strict=True))
        middle = len(shortest) // 2
        median = (shortest[middle] + shortest[~middle]) / 2
        assert one.transfer_ns == pytest.approx(median, abs=1)
        assert one.calls == len(shortest)
        assert one.message_bytes is not None
        assert one.bus_bytes_per_s == pytest.approx(one.message_bytes / median * 1.5e9, rel=1e-6)
        assert one.bus_bytes_per_s < 450e9
    # Every all-reduce of the profiled steps has its bytes: 11 a step.
    assert sum(one.calls for one in links.groups) == 33
    assert {one.compiled_for for one in links.groups} == {"ring LL"}
    (line,) = links.lines
    assert "sizes within a factor of 16" in line.reason


def test_a_report_has_a_row_for_each_kind(build: CaptureBuilder) -> None:
    found = summaries(4, groups=(("0", 4), ("1", 2)))
    links = link_figures(found, instances(found), calibration())
    build.kernel(50, 1000, 2000, "some_kernel")
    page = render_markdown(msgspec.structs.replace(analyze(build.build()), links=links))
    assert "## Collectives over all ranks" in page
    assert "compiled for ring LL" in page
    assert page.count("| all-reduce | 4 |") >= len(SIZES)
    # Beside what was measured: half of it, of four ranks alone.
    assert page.count("50.0%") == len(SIZES)
    assert "| ring hop |" in page
