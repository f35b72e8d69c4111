"""What one step is, in words: the unit of a step's time and of MFU."""

from gpuprof.reports import formatting
from gpuprof.roofline.step_figures import StepContent

_ONE = (1, 1)


def step_unit(content: StepContent) -> str:
    """One step of a training: "optimizer step of 2 micro-batches"."""
    if content.optimizer_steps == _ONE:
        if content.backward_passes == _ONE:
            return "optimizer step"
        return f"optimizer step of {_passes(content)}"
    if content.optimizer_steps[1] > 1:
        steps = _range(content.optimizer_steps, "optimizer step", "optimizer steps")
        return f"{steps} and {_passes(content)}"
    if content.backward_passes == _ONE and content.optimizer_steps[1] == 1:
        return "micro-batch, of which not each ends in an optimizer step"
    return _passes(content)


def is_usual(content: StepContent) -> bool:
    """Whether a step is one optimizer step with one backward pass."""
    return content.optimizer_steps == _ONE == content.backward_passes


def sentence(content: StepContent) -> str:
    """What a step is: "a step is one optimizer step of 2 micro-batches"."""
    unit = step_unit(content)
    return f"a step is {unit if unit[0].isdigit() else f'one {unit}'}"


def _passes(content: StepContent) -> str:
    if content.accumulates:
        return _range(content.backward_passes, "micro-batch", "micro-batches")
    return _range(content.backward_passes, "backward pass", "backward passes")


def _range(counts: tuple[int, int], one: str, several: str) -> str:
    least, most = counts
    known = formatting.counted(most, one, several)
    return known if least == most else f"{least} to {known}"
