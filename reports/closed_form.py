"""From the closed form of a step's FLOPs to what its operators count, line by line."""

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from gpuprof.reports import formatting
from gpuprof.reports.utilization import signed_flops
from gpuprof.roofline.analysis import ClosedForm, Utilization

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
            (utilization.checkpointed_flops, "checkpointed activations, computed again"),
            (scores, "attention scores, computed again going back"),
        ):
            if again:
                table.add_row(_signed(again), what)
        table.add_row(_flops(hardware), "executed: HFU", style=_TOTAL_STYLE)
    masked = utilization.model_flops_causal - utilization.model_flops
    if masked:
        table.add_row(_signed(masked), "of MFU's, pairs that attention's masks drop")
        causal = _flops(utilization.model_flops_causal)
        table.add_row(causal, "counted by kept pairs: MFU, causal", style=_TOTAL_STYLE)


def _flops(count: int) -> Text:
    return Text(formatting.quantity(count, "FLOP", digits=5))


def _signed(count: int) -> Text:
    return Text(signed_flops(count))
