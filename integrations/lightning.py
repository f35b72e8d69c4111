"""`GpuprofCallback` for the Trainer of PyTorch Lightning."""

from pathlib import Path
from typing import Any

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ModuleNotFoundError:
    # The older of the two packages that bring it.
    from pytorch_lightning import Callback, LightningModule, Trainer

import gpuprof
from gpuprof.integrations.profiled_steps import ProfiledSteps


class GpuprofCallback(Callback):
    """Profiles a training from `first_step` on; `options` are those of `gpuprof.profile`.

        Trainer(callbacks=[GpuprofCallback("train.gpuprof", first_step=100)])

    A step is an optimizer step, with all its micro-batches. The capture is stored after the
    profiled steps, and again when the training ends, also by an exception. `profile` is the
    `gpuprof.profile`, with `output` and `analysis`.
    """

    def __init__(
        self, output: str | Path | None = None, *, first_step: int = 0, **options: Any
    ) -> None:
        self._steps = ProfiledSteps(output, first_step, **options)
        self._done = 0

    @property
    def profile(self) -> gpuprof.profile:
        """The profile that this opens."""
        return self._steps.profile

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """See `Callback`."""
        self._done = trainer.global_step
        self._steps.begin(self._done)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """See `Callback`."""
        # A batch whose gradients are only added up makes no optimizer step.
        if trainer.global_step > self._done:
            self._steps.end()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """See `Callback`."""
        self._steps.close()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """See `Callback`."""
        self._steps.close(exception)
