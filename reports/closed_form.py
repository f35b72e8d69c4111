"""The closed form of a transformer: its figures, and the way from it to what operators count."""

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Fact
from gpuprof.reports.figures import OVER_PEAK, is_over_peak
from gpuprof.reports.utilization import signed_flops
from gpuprof.roofline.analysis import Utilization
from gpuprof.roofline.closed_form_figures import ClosedForm
from gpuprof.roofline.utilization.closed_form_answer import ClosedFormAnswer, TransformerRun

_TOTAL_STYLE = "bold"


def closed_form_table(form: ClosedForm, utilization: Utilization | None) -> Table:
    """One row a summand, those of sums in bold; FLOPs of one step."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("FLOPs a step", justify="right", no_wrap=True)
    table.add_column("What", overflow="fold")
    weights, _, attention = form.formula.partition(" + ")
    of_weights = f"{weights}: N {form.parameters:,} parameters, D {form.tokens:,} tokens a step"
    table.add_row(_flops(form.flops - form.attention_flops), of_weights)
    if attention:
        in_full = f"{attention}: attention, each query with each key"
        table.add_row(_flops(form.attention_flops), in_full)
    table.add_row(_flops(form.flops), "closed form", style=_TOTAL_STYLE)
    for difference in form.differences:
        table.add_row(_signed(difference.flops), formatting.printable(difference.reason))
    if form.unexplained:
        table.add_row(_signed(form.unexplained), "not explained")
    table.add_row(_flops(form.counted), "counted by operators: MFU", style=_TOTAL_STYLE)
    if utilization is not None:
        _add_other_counts(table, utilization)
    return table


def _add_other_counts(table: Table, utilization: Utilization) -> None:
    """How HFU's count and the causal one follow from MFU's."""
    hardware = utilization.hardware_flops
    if hardware is not None and hardware != utilization.model_flops:
        scores = hardware - utilization.model_flops - utilization.checkpointed_flops
        for again, what in (
            (utilization.checkpointed_flops, "checkpointed activations, recomputed"),
            (scores, "attention scores, recomputed in the backward pass"),
        ):
            if again:
                table.add_row(_signed(again), what)
        table.add_row(_flops(hardware), "executed: HFU", style=_TOTAL_STYLE)
    masked = utilization.model_flops_causal - utilization.model_flops
    if masked:
        table.add_row(_signed(masked), "minus pairs the mask drops")
        causal = _flops(utilization.model_flops_causal)
        table.add_row(causal, "counted by the pairs kept: MFU, causal", style=_TOTAL_STYLE)


def _flops(count: int) -> Text:
    return Text(formatting.quantity(count, "FLOP", digits=5))


def _signed(count: int) -> Text:
    return Text(signed_flops(count))


def answer_facts(found: ClosedFormAnswer) -> Iterator[Fact]:
    """The figures as labelled sentences."""
    yield Fact("N", f"{found.parameters:,}", "parameters that a token is multiplied with")
    flops = formatting.quantity(found.flops_per_token, "FLOP a token", 4)
    yield Fact("FLOPs", flops, found.formula)
    if found.tokens_per_s is not None:
        speed = formatting.quantity(found.tokens_per_s, "tokens/s a GPU", 4)
        yield Fact("Speed", speed, formatting.flops_rate(found.flops_per_s))
    if found.mfu is not None:
        of_peak = f"of {formatting.flops_rate(found.peak)} {found.peak_label}"
        yield _share_fact("MFU", found.mfu, of_peak)
    if found.mfu_causal_half is not None and found.mfu_causal_half != found.mfu:
        if found.mode != "decode":
            yield _share_fact("MFU, causal", found.mfu_causal_half, "half of the attention")
    if found.hfu is not None:
        yield _share_fact("HFU", found.hfu, "including recomputation of the forward pass")
    if found.mbu is not None:
        read = (
            f"{formatting.byte_count(found.weight_bytes)} of weights and "
            f"{formatting.byte_count(found.key_value_bytes)} of keys and values a step, "
            f"of {formatting.byte_rate(found.bandwidth)}"
        )
        yield _share_fact("MBU", found.mbu, read)


def _share_fact(label: str, share: float, note: str) -> Fact:
    flag = f"; {OVER_PEAK}" if is_over_peak(share) else ""
    return Fact(label, formatting.percent(share), note + flag)


def answer_notes(run: TransformerRun, found: ClosedFormAnswer) -> Iterator[str]:
    """What the figures of `run` rest on: what was left out or taken for granted."""
    yield from _model_notes(run)
    if run.gpus > 1:
        yield f"Tokens are of the whole job, shared by {run.gpus} GPUs."
    elif run.tokens_per_s is not None or run.step_s is not None:
        yield "Tokens are taken as one GPU's; --gpus divides those of a whole job."
    sequences = run.step_sequences
    if run.mode == "decode" and sequences is not None:
        if found.weight_bytes is None:
            yield ("The experts read in a step are unknown: give --experts, --experts-per-token.")
        if found.key_value_bytes is None:
            yield "Keys and values are not known: give --kv-bytes, or the model's dimensions."
        if run.active_parameters is not None and sequences > 1:
            yield "The experts read are the most that the step's tokens can choose."


def _model_notes(run: TransformerRun) -> Iterator[str]:
    if run.embedding_parameters:
        embedding = f"{run.embedding_parameters:,}"
        yield f"N is without the input embedding of {embedding} parameters: a lookup."
    elif not run.tied:
        yield "N has all parameters; --vocabulary leaves the input embedding out."
    if run.active_parameters is not None:
        yield "N has the parameters active per token, not those of all experts."
    if run.adapter_parameters is not None:
        yield "Frozen weights cost 4 N in training: they have no gradient of their own."
    keys = run.size.keys
    if keys is None:
        yield "Attention's scores are left out; --layers, --hidden and --sequence add them."
    elif run.mode == "decode":
        yield f"Each token reads and multiplies all {keys:,} keys of its cache."
    else:
        yield f"Attention in full: each query with all {keys:,} keys; causal counts half of that."
