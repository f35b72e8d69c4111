"""`GpuprofCallback` for the Trainer of Hugging Face transformers."""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

import gpuprof
from gpuprof.integrations.profiled_steps import ProfiledSteps


class GpuprofCallback(TrainerCallback):
    """Profiles a training from `first_step` on; `options` are those of `gpuprof.profile`.

        Trainer(model, arguments, callbacks=[GpuprofCallback("train.gpuprof", first_step=100)])

    A step is an optimizer step, with all its micro-batches. The capture is stored after the
    profiled steps, and again when the training ends. `profile` is the `gpuprof.profile`, with
    `output` and `analysis`.
    """

    def __init__(
        self, output: str | Path | None = None, *, first_step: int = 0, **options: Any
    ) -> None:
        self._steps = ProfiledSteps(output, first_step, **options)

    @property
    def profile(self) -> gpuprof.profile:
        """The profile that this opens."""
        return self._steps.profile

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """See `TrainerCallback`."""
        self._steps.begin(state.global_step)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """See `TrainerCallback`."""
        self._steps.end()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """See `TrainerCallback`."""
        self._steps.close()
