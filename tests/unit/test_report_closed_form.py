"""Utilization and the closed form as reports word them."""

import io

import msgspec
import pytest
from rich.console import Console

from gpuprof.reports.closed_form import closed_form_table
from gpuprof.reports.utilization import (
    closed_form_fact,
    closed_form_facts,
    headline_fact,
    utilization_facts,
)
from gpuprof.roofline.analysis import Analysis, Utilization
from gpuprof.roofline.closed_form_figures import ClosedForm, FlopDifference
from gpuprof.roofline.machine.ceilings import Ceiling

FORM = ClosedForm(
    formula="6 N D + 12 L H Q T D",
    parameters=1_000_000,
    tokens=2048,
    flops=13_000_000_000,
    attention_flops=712_000_000,
    counted=11_000_000_000,
    differences=(
        FlopDifference("norms and biases are in no matrix product", -500_000_000),
        FlopDifference("embedding tables are looked up, not multiplied", -2_000_000_000),
    ),
    unexplained=500_000_000,
)


def with_utilization(analysis: Analysis, **changes: object) -> Analysis:
    assert analysis.utilization is not None
    utilization = msgspec.structs.replace(analysis.utilization, **changes)
    return msgspec.structs.replace(analysis, utilization=utilization)


def notes(analysis: Analysis) -> dict[str, tuple[str, str]]:
    facts = (*utilization_facts(analysis), *closed_form_facts(analysis))
    return {fact.label: (fact.value, fact.note) for fact in facts}


def test_mfu_states_how_causal_attention_is_counted(training_analysis: Analysis) -> None:
    assert notes(training_analysis)["MFU"][1].endswith("causal attention in full")
    use = training_analysis.utilization
    assert use is not None
    plain = with_utilization(
        training_analysis, model_flops_causal=use.model_flops, mfu_causal=use.mfu
    )
    assert "causal" not in notes(plain)["MFU"][1]
    assert "MFU, causal" not in notes(plain)


def test_hfu_says_what_is_computed_again(training_analysis: Analysis) -> None:
    use = training_analysis.utilization
    assert use is not None
    again = with_utilization(
        training_analysis,
        hardware_flops=use.model_flops + 3_000_000_000_000,
        checkpointed_flops=2_000_000_000_000,
        hfu=0.7,
        hfu_causal=0.65,
    )
    value, note = notes(again)["HFU"]
    assert value == "70.0%"
    assert "2.00 TFLOP of checkpointed activations and 1.00 TFLOP of attention scores" in note
    assert note.endswith("causal 65.0%")


def test_without_anything_computed_again_there_is_no_hfu(training_analysis: Analysis) -> None:
    use = training_analysis.utilization
    assert use is not None
    same = with_utilization(training_analysis, hardware_flops=use.model_flops, hfu=use.mfu)
    assert "HFU" not in notes(same)


def test_an_fp8_run_names_both_peaks(training_analysis: Analysis) -> None:
    bf16 = Ceiling(
        kind="compute",
        rate=989.4e12,
        source="datasheet",
        reference="",
        unit="tensor",
        precision="bf16",
    )
    fp8 = with_utilization(training_analysis, other_peak=bf16, mfu_other_peak=1.4)
    value, note = notes(fp8)["MFU, bf16 peak"]
    assert value == "140%"
    assert "989 TFLOP/s bf16" in note
    assert "may exceed" in note


def test_mbu_names_what_is_read_and_flags_the_impossible(training_analysis: Analysis) -> None:
    memory = Ceiling(kind="memory", rate=3.35e12, source="datasheet", reference="", level="DRAM")
    decode = with_utilization(
        training_analysis,
        weight_bytes=13_214_154_752,
        key_value_bytes=1_073_741_824,
        memory_peak=memory,
        mbu=1.2,
    )
    value, note = notes(decode)["MBU"]
    assert value == "120%"
    assert "13.2 GB of weights and 1.07 GB of keys and values" in note
    assert "3.35 TB/s DRAM (datasheet)" in note
    assert "peak or count wrong" in note


def test_a_step_bound_by_memory_has_mbu_at_its_head(training_analysis: Analysis) -> None:
    assert headline_fact(training_analysis).label == "MFU"
    memory = Ceiling(kind="memory", rate=3.35e12, source="datasheet", reference="", level="DRAM")
    decode = with_utilization(
        training_analysis, mfu=0.04, weight_bytes=1, memory_peak=memory, mbu=0.6
    )
    assert headline_fact(decode).label == "MBU"


def test_the_closed_form_names_its_largest_difference_first() -> None:
    fact = closed_form_fact(FORM)
    assert fact.value == "13.00 GFLOP"
    reasons = fact.note.partition(": ")[2].split("; ")
    assert reasons == [
        "-2.00 GFLOP embedding tables are looked up, not multiplied",
        "-500 MFLOP norms and biases are in no matrix product",
        "+500 MFLOP not explained",
    ]


def test_many_differences_are_summed_up() -> None:
    many = tuple(FlopDifference(f"reason {number}", number) for number in range(1, 8))
    fact = closed_form_fact(msgspec.structs.replace(FORM, differences=many, unexplained=0))
    assert fact.note.endswith("+4.00 FLOP reason 4; 3 smaller differences")


def test_equal_counts_say_so() -> None:
    form = msgspec.structs.replace(
        FORM, differences=(), unexplained=0, counted=FORM.flops, attention_flops=0
    )
    assert closed_form_fact(form).note.endswith("operators count 13.00 GFLOP, the same")


def test_the_closed_form_stands_where_no_step_was_timed(bare_analysis: Analysis) -> None:
    analysis = msgspec.structs.replace(bare_analysis, closed_form=FORM)
    assert list(notes(analysis)) == ["MFU", "Closed form"]


@pytest.mark.parametrize("scores", [0, 40])
def test_the_table_leads_from_the_formula_to_each_count(scores: int) -> None:
    utilization = Utilization(
        precision="bf16",
        model_flops=FORM.counted,
        model_flops_causal=FORM.counted - 300_000_000,
        hardware_flops=FORM.counted + 100_000_000 + scores,
        checkpointed_flops=100_000_000,
        step_ns=1,
        flops_per_s=1.0,
    )
    out = io.StringIO()
    Console(file=out, width=100).print(closed_form_table(FORM, utilization))
    lines = [line.split() for line in out.getvalue().splitlines()[2:]]
    assert [line[0] for line in lines if line] == [
        "12.288",
        "712.00",
        "13.000",
        "-500",
        "-2.00",
        "+500",
        "11.000",
        "+100",
        *(["+40.0"] if scores else []),
        "11.100",
        "-300",
        "10.700",
    ]
