"""The callbacks, in trainings that `gpuprof run` did not start."""

from pathlib import Path

import pytest
from trainer_programs import PROGRAMS, RunPython

import gpuprof
from gpuprof.reports.step_unit import step_unit

HUGGING_FACE = """
import tempfile
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments
from gpuprof.integrations.transformers import GpuprofCallback
from hf_trainer import RandomTokens

sizes = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
callback = GpuprofCallback("run.gpuprof", first_step=3)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, gradient_accumulation_steps=2, max_steps=24, report_to="none", use_cpu=True,
        save_strategy="no",
    )
    model = BertForMaskedLM(BertConfig(vocab_size=512, **sizes))
    Trainer(model, arguments, train_dataset=RandomTokens(), callbacks=[callback]).train()
print(callback.profile.analysis.steps.later)
"""

LIGHTNING = """
import lightning, torch
from gpuprof.integrations.lightning import GpuprofCallback
from lightning_fit import Autoencoder

callback = GpuprofCallback("run.gpuprof", first_step=3)
data = torch.utils.data.TensorDataset(torch.randn(8 * 48, 256))
lightning.Trainer(
    max_epochs=1, accumulate_grad_batches=2, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, callbacks=[callback],
).fit(Autoencoder(), torch.utils.data.DataLoader(data, batch_size=8))
print(callback.profile.analysis.steps.later)
"""


@pytest.mark.parametrize("program", [HUGGING_FACE, LIGHTNING], ids=["transformers", "lightning"])
def test_a_callback_profiles_from_its_first_step(
    tmp_path: Path, python: RunPython, program: str
) -> None:
    (tmp_path / "program.py").write_text(f"import sys; sys.path.append({str(PROGRAMS)!r}){program}")
    printed = python("program.py")
    steps = gpuprof.analyze(gpuprof.load(tmp_path / "run.gpuprof")).steps
    assert steps.found_by == "gpuprof.step() calls"
    assert steps.content is not None
    assert step_unit(steps.content) == "optimizer step of 2 micro-batches"
    # 24 optimizer steps: 3 left out, then the schedule, then one in which the capture was stored.
    later = 24 - 3 - (3 + 10 + 1 + 3) - 1
    assert (steps.timed, steps.profiled, steps.later) == (10, 3, later)
    assert printed.splitlines()[-1] == str(steps.later)


STOPS = """
import lightning, torch
from gpuprof.integrations.lightning import GpuprofCallback
from lightning_fit import Autoencoder

class Fails(Autoencoder):
    def training_step(self, batch, index):
        if index == 5:
            raise FloatingPointError("the loss is not finite")
        return super().training_step(batch, index)

data = torch.utils.data.TensorDataset(torch.randn(8 * 48, 256))
trainer = lightning.Trainer(
    max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    callbacks=[GpuprofCallback("run.gpuprof")],
)
try:
    trainer.fit(Fails(), torch.utils.data.DataLoader(data, batch_size=8))
except FloatingPointError:
    print("raised")
"""


def test_a_training_that_fails_is_stored(tmp_path: Path, python: RunPython) -> None:
    (tmp_path / "program.py").write_text(f"import sys; sys.path.append({str(PROGRAMS)!r}){STOPS}")
    assert python("program.py").splitlines()[-1] == "raised"
    process = gpuprof.load(tmp_path / "run.gpuprof").processes[0]
    assert process.ending == "exception"
    assert "FloatingPointError" in process.exceptions[0]


RANKS = """
import lightning, torch
from gpuprof.integrations.lightning import GpuprofCallback
from lightning_fit import Autoencoder

data = torch.utils.data.TensorDataset(torch.randn(2 * 8 * 24, 256))
lightning.Trainer(
    max_epochs=1, devices=2, accelerator="cpu", strategy="ddp", logger=False,
    enable_checkpointing=False, enable_progress_bar=False,
    callbacks=[GpuprofCallback("run.gpuprof")],
).fit(Autoencoder(), torch.utils.data.DataLoader(data, batch_size=8))
"""


def test_ranks_that_the_trainer_starts_itself_are_in_one_capture(
    tmp_path: Path, python: RunPython
) -> None:
    (tmp_path / "program.py").write_text(f"import sys; sys.path.append({str(PROGRAMS)!r}){RANKS}")
    python("program.py")
    capture = gpuprof.load(tmp_path / "run.gpuprof")
    assert capture.manifest.ranks == (0, 1)
    assert "all-reduce" in {transfer.what for transfer in gpuprof.analyze(capture).transfers}
