"""The words that all reports share."""

import msgspec
import pytest

from gpuprof.reports import formatting
from gpuprof.reports.figures import (
    any_over_peak,
    flops_text,
    gain_sentence,
    is_unexplained,
    point_roof_percent,
    roof_percent,
)
from gpuprof.reports.sections.coverage import coverage_sentence
from gpuprof.reports.sections.machine import environment_facts
from gpuprof.reports.sections.overview import ending_sentence
from gpuprof.reports.sections.step import device_facts, rungs, step_time_fact
from gpuprof.reports.utilization import utilization_facts
from gpuprof.roofline.analysis import Analysis, Bottleneck
from gpuprof.roofline.cost_models.cost import Flops
from gpuprof.roofline.step_figures import Exposed, StepDefinition


def test_the_parts_of_a_step_add_up_to_it(training_analysis: Analysis) -> None:
    split = training_analysis.split
    assert split is not None
    parts = rungs(training_analysis, split)
    assert sum(part.nanoseconds for part in parts) == split.step_ns
    assert sum(part.fraction for part in parts) == pytest.approx(1)


def test_mfu_names_its_peak_and_its_source(training_analysis: Analysis) -> None:
    mfu, causal = utilization_facts(training_analysis)
    assert "989 TFLOP/s bf16 tensor (datasheet, dense)" in mfu.note
    assert float(causal.value.rstrip("%")) < float(mfu.value.rstrip("%"))


def test_mfu_without_a_peak_is_unknown_and_says_why(training_analysis: Analysis) -> None:
    assert training_analysis.utilization is not None
    utilization = msgspec.structs.replace(
        training_analysis.utilization, peak=None, mfu=None, mfu_causal=None
    )
    analysis = msgspec.structs.replace(training_analysis, utilization=utilization)
    (fact,) = utilization_facts(analysis)
    assert fact.value == "-"
    assert "no bf16 peak is known" in fact.note


def test_mfu_over_the_peak_is_flagged(training_analysis: Analysis) -> None:
    assert training_analysis.utilization is not None
    utilization = msgspec.structs.replace(training_analysis.utilization, mfu=1.04)
    analysis = msgspec.structs.replace(training_analysis, utilization=utilization)
    fact = utilization_facts(analysis)[0]
    assert fact.value == "104%"
    assert "peak or count wrong" in fact.note


def covered(analysis: Analysis, with_flops: float) -> Analysis:
    coverage = msgspec.structs.replace(analysis.coverage, with_flops=with_flops)
    return msgspec.structs.replace(analysis, coverage=coverage)


def test_mfu_of_a_part_of_the_work_is_a_lower_bound(training_analysis: Analysis) -> None:
    whole, part = (utilization_facts(covered(training_analysis, share))[0] for share in (0.98, 0.9))
    assert part.value == f"at least {whole.value}"
    assert part.note == f"{whole.note}; without the 10.0% of device time that has no FLOP model"


def test_mfu_of_little_of_the_work_is_unknown(training_analysis: Analysis) -> None:
    (fact,) = utilization_facts(covered(training_analysis, 0.05))
    assert fact.value == "-"
    assert fact.note == "95.0% of device time has no FLOP model"


def test_mfu_without_a_step_is_unknown_and_says_so(bare_analysis: Analysis) -> None:
    (fact,) = utilization_facts(bare_analysis)
    assert (fact.value, fact.note) == ("-", "no step was seen")


def test_mfu_of_profiled_steps_and_of_several_devices_says_so(training_analysis: Analysis) -> None:
    use = training_analysis.utilization
    assert use is not None
    of_two = msgspec.structs.replace(use, basis="device period", devices=2)
    fact, *_ = utilization_facts(msgspec.structs.replace(training_analysis, utilization=of_two))
    assert "of each of 2 devices" in fact.note
    assert "in the time they took under the profiler" in fact.note


def test_the_step_time_names_its_clock_and_range(training_analysis: Analysis) -> None:
    fact = step_time_fact(training_analysis.steps)
    assert fact.value == "12.91 ms"
    assert fact.note == (
        "median of 10, 12.88 ms to 13.16 ms, interquartile range 0.3%, "
        "timed without the profiler, CUDA events"
    )


def test_one_step_has_no_spread(training_analysis: Analysis) -> None:
    steps = msgspec.structs.replace(training_analysis.steps, timed=1)
    assert step_time_fact(steps).note == "one step, timed without the profiler, CUDA events"


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        ("device period", "mean of 2, 20 ms to 22 ms, device period under the profiler"),
        ("host range", "mean of 2, 20 ms to 22 ms, host range under the profiler"),
        ("whole trace", "whole trace: nothing marks steps"),
    ],
)
def test_a_step_time_of_profiled_steps_names_its_definition(
    training_analysis: Analysis, definition: StepDefinition, said: str
) -> None:
    steps = msgspec.structs.replace(
        training_analysis.steps,
        timed=0,
        definition=definition,
        samples_ns=(20_000_000,) if definition == "whole trace" else (20_000_000, 22_000_000),
        minimum_ns=20_000_000,
        maximum_ns=22_000_000,
        relative_spread=None,
        profiled_mean_ns=21_000_000,
    )
    fact = step_time_fact(steps)
    assert (fact.value, fact.note.replace(".00 ", " ")) == ("21.00 ms", said)


def test_no_step_is_said_once_with_the_reason(bare_analysis: Analysis) -> None:
    fact = step_time_fact(bare_analysis.steps)
    assert (fact.value, fact.note) == ("-", "no complete step was seen")


def test_the_rounded_hundred_is_not_flagged_but_more_is() -> None:
    assert roof_percent(1.0004) == "100%"
    assert roof_percent(1.12) == "112%!"
    assert roof_percent(None) == "-"


def test_a_sentence_gets_a_capital_and_one_full_stop() -> None:
    assert formatting.sentence("18% of the step: the host") == "18% of the step: the host."
    assert formatting.sentence("no GPU. ") == "No GPU."
    assert formatting.sentence("aten::mm is slow") == "aten::mm is slow."
    assert formatting.sentence("") == ""


def test_flops_are_named_by_precision_and_unit() -> None:
    flops = (Flops("matmul", "bf16", 137_438_953_472), Flops("vector", "fp32", 0))
    assert flops_text(flops) == "137 GFLOP bf16 matmul"
    assert flops_text(()) == "none"
    assert flops_text(None) == "-"


def test_a_script_that_raised_is_said_to_have(bare_analysis: Analysis) -> None:
    assert "exception (exit code 1)" in ending_sentence(bare_analysis)
    finished = msgspec.structs.replace(bare_analysis, ending="finished")
    assert ending_sentence(finished) == ""


def test_only_recorded_facts_are_listed(
    training_analysis: Analysis, bare_analysis: Analysis
) -> None:
    assert environment_facts(bare_analysis) == ()
    labels = [fact.label for fact in environment_facts(training_analysis)]
    assert "OMP_NUM_THREADS" in labels
    assert "HIP" not in labels


def test_coverage_of_little_device_time_says_how_little(training_analysis: Analysis) -> None:
    whole_ns = training_analysis.coverage.device_ns
    share_of_a_step = f"100% of {whole_ns / 3e6:.1f} ms device time a step has an operator"
    assert coverage_sentence(training_analysis).startswith(share_of_a_step)
    assert "That is" not in coverage_sentence(training_analysis)
    coverage = msgspec.structs.replace(training_analysis.coverage, device_ns=18_900)
    steps = msgspec.structs.replace(training_analysis.steps, median_ns=17_000_000, profiled=1)
    little = msgspec.structs.replace(training_analysis, coverage=coverage, steps=steps)
    assert "That is 0.1% of the step's 17.00 ms." in coverage_sentence(little)


def test_a_share_over_100_percent_that_a_cache_explains_is_no_warning(
    training_analysis: Analysis,
) -> None:
    point = msgspec.structs.replace(training_analysis.kernels[0], roof_fraction=1.12)
    assert (point_roof_percent(point), is_unexplained(point)) == ("112%!", True)
    cached = msgspec.structs.replace(point, bottleneck=Bottleneck("cache", "", 0))
    assert (point_roof_percent(cached), is_unexplained(cached)) == ("112%", False)
    assert not any_over_peak([cached])


def test_several_devices_have_a_line_each(training_analysis: Analysis) -> None:
    split = training_analysis.split
    assert split is not None
    busy = Exposed(device=1, computing_ns=split.step_ns // 2, communication_ns=0, copies_ns=30_000)
    other = Exposed(device=0, computing_ns=split.step_ns // 4, communication_ns=0, copies_ns=0)
    assert device_facts(training_analysis) == ()
    one = msgspec.structs.replace(training_analysis, exposed=busy, devices=(busy,))
    assert device_facts(one) == ()
    first, second = device_facts(msgspec.structs.replace(one, devices=(other, busy)))
    assert (first.label, first.value, second.label, second.value) == (
        *("Device 0", "25.0% busy"),
        *("Device 1", "50.2% busy"),
    )
    assert "it works longest" in second.note
    assert "it works longest" not in first.note


def test_a_gain_is_told_with_the_range_that_is_known_of_it() -> None:
    told = Bottleneck("memory", "", 412_000_000, (0, 648_000_000))
    assert gain_sentence(told, in_steps=True) == ("About 412 ms a step to gain, 0 ns to 648 ms.")
    sure = msgspec.structs.replace(told, gain_range_ns=(told.gain_ns or 0, told.gain_ns or 0))
    assert gain_sentence(sure, in_steps=True) == "About 412 ms a step to gain."
    plain = Bottleneck("memory", "", 412_000_000)
    assert gain_sentence(plain, in_steps=True) == "Up to 412 ms a step to gain."
    assert gain_sentence(plain, in_steps=False) == "Up to 412 ms of the recording to gain."
    assert gain_sentence(Bottleneck("unknown", "", None), in_steps=True) == ""
