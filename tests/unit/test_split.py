"""The parts of a step: they add up, nothing is negative, and what is clipped is said."""

from typing import Any

import pytest
from capture_builder import CaptureBuilder
from hypothesis import given
from hypothesis import strategies as st

from gpuprof.roofline.analysis import Bottleneck, RooflinePoint
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.classes import ClassName
from gpuprof.roofline.step_figures import Exposed, StepDefinition, StepSplit, StepTimes
from gpuprof.roofline.steps.split import clip_warning, split_step
from gpuprof.roofline.steps.stretch import Stretch
from gpuprof.roofline.steps.waiting import SeenWaiting, Waiting


def point(device_ns: int, roof_ns: int | None, kind: ClassName) -> RooflinePoint:
    return RooflinePoint(
        level="op",
        name="op",
        calls=1,
        device_ns=device_ns,
        device_fraction=0.0,
        roof_ns=roof_ns,
        bottleneck=Bottleneck(kind, "", None),
    )


def times(timed: int | None, **more: Any) -> StepTimes:
    return StepTimes(
        found_by="",
        warmup=0,
        timed=0 if timed is None else 1,
        profiled=1,
        clock="",
        median_ns=timed,
        **more,
    )


def split_of(
    points: tuple[RooflinePoint, ...],
    computing_ns: int,
    *,
    timed: int | None = None,
    profiled: tuple[int, ...] = (1500,),
    definition: StepDefinition = "host range",
    on_cpu: bool = False,
    unequal: str = "",
    slower_ns: int = 0,
    **hidden: int,
) -> StepSplit:
    amounts = {"communication_ns": 0, "copies_ns": 0, **hidden}
    use = Exposed(computing_ns=computing_ns, **amounts)
    # As much as any step here can wait for.
    longest_ns = max(timed or 0, *profiled)
    return split_step(
        times(timed, unequal=unequal),
        Stretch(definition, profiled),
        use,
        points,
        waiting=SeenWaiting({"outside" if on_cpu else "launch": Waiting(shrinks_ns=longest_ns)}),
        slower_ns=slower_ns,
        on_cpu=on_cpu,
    )


def parts(split: StepSplit) -> dict[str, int]:
    return {part.kind: part.nanoseconds for part in split.parts}


POINTS = (
    point(400, 300, "compute"),
    point(200, 50, "memory"),
    point(100, 10, "small"),
    point(60, None, "unknown"),
)


def test_a_step_is_split_by_class() -> None:
    split = split_of(POINTS, 760, timed=1000)
    assert (split.step_ns, split.basis, split.clipped_ns) == (1000, "timed", 0)
    assert parts(split) == {
        "roof": 360,
        "compute": 100,
        "memory": 150,
        "small": 90,
        "unknown": 60,
        "launch": 240,
    }


def test_a_step_waits_for_other_ranks_as_long_as_it_has_room_for() -> None:
    # Of 900 ns in which the device communicates alone it waits 700.
    waits = {"communication_ns": 900, "rank_waits_ns": 700}
    roomy = split_of(POINTS, 760, timed=2000, **waits)
    assert (parts(roomy)["other rank"], parts(roomy)["communication"]) == (700, 200)
    assert (roomy.idle_ns, roomy.clipped_ns) == (340, 0)
    full = split_of(POINTS, 760, timed=1100, **waits)
    # But for the 2 % that work may be longer under the profiler, which all parts lose.
    assert (full.basis, full.step_ns, full.clipped_ns) == ("timed", 1100, 22)
    assert parts(full)["other rank"] == pytest.approx(162, rel=0.04)
    assert parts(full)["communication"] == pytest.approx(200, rel=0.04)
    assert (full.idle_ns, parts(full)["roof"]) == (0, 360)
    # Work that is longer than the step is other work, with or without waiting.
    other = split_of(POINTS, 760, timed=900, profiled=(1700,), **waits)
    assert (other.basis, parts(other)["other rank"]) == ("host range", 700)


def test_work_that_took_longer_without_the_profiler_is_lost_and_not_waited_for() -> None:
    split = split_of(POINTS, 760, timed=1000, slower_ns=200)
    # The 400 ns lost become 600, each class by half; what is at the roof does not change.
    assert parts(split) == {
        "roof": 360,
        "compute": 150,
        "memory": 225,
        "small": 135,
        "unknown": 90,
        "launch": 40,
    }
    assert split.slower_ns == 200
    at_its_roof = split_of((point(100, 100, "compute"),), 100, timed=150, slower_ns=30)
    assert (parts(at_its_roof)["roof"], parts(at_its_roof)["compute"]) == (100, 30)
    assert at_its_roof.idle_ns == 20


def test_several_profiled_steps_are_one_steps_mean() -> None:
    points = tuple(
        point(3 * p.device_ns, p.roof_ns and 3 * p.roof_ns, p.bottleneck.kind) for p in POINTS
    )
    three = split_of(points, 760, timed=1000, profiled=(1500,) * 3)
    assert three == split_of(POINTS, 760, timed=1000)


def test_work_above_its_roof_is_at_its_roof() -> None:
    split = split_of((point(100, 500, "compute"),), 100, timed=1000)
    assert (parts(split)["roof"], parts(split)["compute"], split.idle_ns) == (100, 0, 900)


def test_what_overlaps_is_lost_once_and_the_time_at_the_roof_stays() -> None:
    # 760 ns of work in 600 ns: of the 400 ns lost 160 are hidden.
    split = split_of(POINTS, 600, timed=1000)
    assert parts(split) == {
        "roof": 360,
        "compute": 60,
        "memory": 90,
        "small": 54,
        "unknown": 36,
        "launch": 400,
    }


def test_work_that_is_all_hidden_leaves_what_hides_it() -> None:
    split = split_of(POINTS, 340, timed=1000)
    assert (parts(split)["roof"], parts(split)["compute"], split.idle_ns) == (340, 0, 660)


def test_communication_copies_and_other_devices_have_parts_of_their_own() -> None:
    split = split_of(
        POINTS, 760, timed=2000, communication_ns=200, copies_ns=40, other_devices_ns=300
    )
    found = parts(split)
    assert (found["communication"], found["copy"]) == (200, 40)
    assert (found["other device"], found["launch"]) == (300, 700)
    assert (split.idle_ns, split.busy_ns) == (1000, 1000)
    assert found["roof"] == 360


def test_a_device_waits_for_another_one_no_longer_than_it_waits() -> None:
    split = split_of(POINTS, 760, timed=1000, other_devices_ns=900)
    assert (parts(split)["other device"], parts(split)["launch"]) == (240, 0)


def test_a_cpus_operators_are_set_against_the_profiled_step() -> None:
    split = split_of(POINTS, 760, timed=1000, on_cpu=True)
    assert (split.basis, split.step_ns, parts(split)["outside"]) == ("host range", 1500, 740)


@pytest.mark.parametrize("definition", ["device period", "host range", "whole trace"])
def test_the_basis_is_the_definition_of_the_steps(definition: StepDefinition) -> None:
    assert split_of(POINTS, 760, definition=definition).basis == definition


def test_steps_of_other_work_are_not_set_against_the_timed_ones() -> None:
    split = split_of(POINTS, 760, timed=1000, unequal="other tokens")
    assert (split.basis, split.step_ns) == ("host range", 1500)


def test_work_that_does_not_fit_the_timed_step_is_set_against_the_profiled_one() -> None:
    split = split_of(POINTS, 760, timed=700, profiled=(900,))
    assert (split.basis, split.step_ns, split.idle_ns) == ("host range", 900, 140)


def test_what_is_clipped_is_said_with_its_size() -> None:
    split = split_of(POINTS, 760, timed=750)
    assert (split.basis, split.idle_ns, split.clipped_ns) == ("timed", 0, 10)
    # What the work needs at the roof is the last to go.
    assert (parts(split)["roof"], sum(parts(split).values())) == (360, 750)
    warning = clip_warning(split)
    assert warning is not None
    assert "works for 760 ns in a profiled step, 10 ns longer" in warning
    assert clip_warning(split_of(POINTS, 760, timed=760)) is None
    assert clip_warning(None) is None


kinds = st.sampled_from(["compute", "memory", "small"])
amounts = st.integers(0, 10**10)
some_points = st.lists(
    st.one_of(
        st.builds(point, amounts, amounts, kinds),
        st.builds(point, amounts, st.none(), st.just("unknown")),
    ),
    max_size=12,
).map(tuple)


@given(
    some_points,
    st.floats(0, 1.5),
    st.integers(1, 10**10) | st.none(),
    st.lists(st.integers(1, 10**10), min_size=1, max_size=5).map(tuple),
    st.booleans(),
    st.tuples(amounts, amounts, amounts),
)
def test_the_parts_add_up_to_the_step_exactly(
    points: tuple[RooflinePoint, ...],
    share: float,
    timed: int | None,
    profiled: tuple[int, ...],
    on_cpu: bool,
    others: tuple[int, int, int],
) -> None:
    steps = len(profiled)
    computing = round(sum(p.device_ns for p in points) / steps * share) if points else 0
    communication, copies, other_devices = others
    split = split_of(
        points,
        computing,
        timed=timed,
        profiled=profiled,
        on_cpu=on_cpu,
        communication_ns=communication,
        copies_ns=copies,
        other_devices_ns=other_devices,
    )
    found = parts(split)
    assert sum(found.values()) == split.step_ns
    assert min(found.values()) >= 0
    busy = computing + communication + copies
    assert split.clipped_ns == max(0, busy - split.step_ns)
    # Overlap takes nothing from the time at the roof but what does not fit at all.
    at_roof = sum(min(p.device_ns, p.roof_ns) for p in points if p.roof_ns is not None) // steps
    assert found["roof"] >= min(at_roof, computing, split.step_ns) - 1


def test_rounding_takes_nothing_from_what_is_at_the_roof() -> None:
    points = tuple(point(1, 0, kind) for kind in ("compute", "memory", "small"))
    split = split_of(points, 2, timed=10)
    assert sum(parts(split).values()) == 10
    assert (parts(split)["roof"], min(parts(split).values())) == (0, 0)


def test_an_analysis_splits_its_step(build: CaptureBuilder) -> None:
    build.step("timed", -2100, -100, device_ns=2000)
    build.step("profiled", 0, 900)
    build.mm(0, 50, 4096, 32, 4096)
    build.kernel(10, 100, 1100)
    build.op("mylib::secret", 60, 90)
    build.kernel(70, 1000, 1300, stream=8)
    analysis = analyze(build.build())
    assert analysis.split is not None
    assert sum(parts(analysis.split).values()) == analysis.split.step_ns == 2000
    # Both streams together are busy from 100 to 1300.
    assert analysis.split.idle_ns == 800
    # A profiled step waits for 100 only.
    assert (parts(analysis.split)["launch"], parts(analysis.split)["unexplained"]) == (100, 700)
    assert analysis.bottleneck.kind == "unexplained"


def test_of_a_step_that_the_host_queues_at_once_nothing_is_waiting(
    build: CaptureBuilder,
) -> None:
    build.step("timed", -2100, -2000, device_ns=2000)
    build.step("profiled", 0, 900)
    build.mm(0, 50, 4096, 32, 4096)
    build.kernel(10, 100, 1300)
    analysis = analyze(build.build())
    assert analysis.split is not None
    assert (analysis.split.idle_ns, analysis.split.slower_ns) == (0, 800)
    assert sum(parts(analysis.split).values()) == 2000
    assert [one for one in analysis.warnings if "longer for the same work" in one]
