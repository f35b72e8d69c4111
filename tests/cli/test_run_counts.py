"""`gpuprof run` on small programs whose FLOPs a step are worked out by hand."""

import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gpuprof.collectors import storage
from gpuprof.roofline.analysis import Analysis, Utilization
from gpuprof.roofline.analyze import analyze

Gpuprof = Callable[..., "subprocess.CompletedProcess[str]"]
Run = Callable[..., Analysis]
# Two layers without biases: 64 -> 128 -> 64.
WEIGHT, ROWS = 64 * 128, 32
MODEL = """
import sys
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128, bias=False), nn.ReLU(), nn.Linear(128, 64, bias=False))
"""
# Products with both weights forward, their gradients, and one gradient of an input.
TRAINING = 2 * ROWS * WEIGHT * 5


@pytest.fixture
def run(tmp_path: Path, gpuprof: Gpuprof) -> Run:
    """Runs a program and analyses its capture."""

    def analysed(program: str, *options: str) -> Analysis:
        (tmp_path / "program.py").write_text(MODEL + textwrap.dedent(program))
        steps = ("--warmup", "2", "--timed", "3", "--profiled", "2")
        result = gpuprof("run", *steps, *options, "-o", "capture.gpuprof", "program.py")
        # Where a count is wrong, which steps were profiled is the first question.
        print(result.stdout)
        assert result.returncode == 0, result.stderr
        return analyze(storage.load(tmp_path / "capture.gpuprof"))

    return analysed


def utilization(analysis: Analysis) -> Utilization:
    assert analysis.utilization is not None
    return analysis.utilization


def test_the_closed_form_has_the_tokens_of_all_passes_of_a_step(run: Run) -> None:
    analysis = run(
        f"""
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for micro_batch in range(48):
            (model(torch.randn({ROWS}, 64)).square().mean() / 4).backward()
            if micro_batch % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
        """
    )
    assert utilization(analysis).model_flops == 4 * TRAINING
    form = analysis.closed_form
    assert form is not None
    assert (form.tokens, form.counted, form.unexplained) == (4 * ROWS, 4 * TRAINING, 0)
    # Nothing asks for the gradient of the input: three of four.
    assert {d.reason for d in form.differences} == {
        "gradients of 128 x 64: 75.0% of what the formula counts"
    }


def test_a_mixture_of_experts_has_no_closed_form_without_its_tokens(run: Run) -> None:
    analysis = run(
        f"""
        class Mixture(nn.Module):
            def __init__(self):
                super().__init__()
                self.gate = nn.Linear(64, 64, bias=False)
                self.experts = nn.ModuleList(
                    nn.Sequential(nn.Linear(64, 256, bias=False), nn.Linear(256, 64, bias=False))
                    for _ in range(4)
                )
            def forward(self, x):
                parts = self.gate(x).split({ROWS} // 4)
                return torch.cat([one(part) for one, part in zip(self.experts, parts)])
        model = Mixture()
        with torch.inference_mode():
            for _ in range(12):
                model(torch.randn({ROWS}, 64))
        """
    )
    assert utilization(analysis).model_flops == 2 * ROWS * (64 * 64 + 2 * 64 * 256)
    assert analysis.closed_form is None


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
def test_what_an_optimizer_multiplies_is_not_the_models(run: Run) -> None:
    analysis = run(
        f"""
        optimizer = torch.optim.Muon(model.parameters(), lr=1e-3)
        for _ in range(12):
            optimizer.zero_grad()
            model(torch.randn({ROWS}, 64)).square().mean().backward()
            optimizer.step()
        """
    )
    use = utilization(analysis)
    assert (use.model_flops, use.hardware_flops) == (TRAINING, TRAINING)
    # Five iterations, on the smaller side: X X', its square with X X', and that with X.
    side, other = 64, 128
    assert use.optimizer_flops == 2 * 5 * 2 * (2 * side * side * other + side**3)


@pytest.mark.parametrize("optimizer", ["torch.optim.SGD(model.parameters(), lr=1e-3)", "Legacy()"])
def test_a_closures_passes_are_forward_and_backward(run: Run, optimizer: str) -> None:
    analysis = run(
        f"""
        class Legacy(torch.optim.Optimizer):
            '''Steps with gradients enabled, as old ones do, and multiplies.'''
            def __init__(self):
                super().__init__(model.parameters(), {{}})
            def step(self, closure):
                loss = closure()
                for group in self.param_groups:
                    for parameter in group["params"]:
                        parameter.data.mm(parameter.data.t())
                return loss
        optimizer = {optimizer}
        x = torch.randn({ROWS}, 64)
        def closure():
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss
        for _ in range(12):
            optimizer.step(closure)
        """
    )
    use = utilization(analysis)
    assert use.model_flops == TRAINING
    assert use.optimizer_flops == (2 * (128 + 64) * WEIGHT if "Legacy" in optimizer else 0)
    flops = {
        phase: sum(
            part.count
            for op in analysis.ops
            if op.phase == phase
            for part in op.flops or ()
            if part.kind == "matmul"
        )
        for phase in ("forward", "backward")
    }
    assert flops == {"forward": 2 * TRAINING * 2 // 5, "backward": 2 * TRAINING * 3 // 5}


def test_a_step_is_the_longest_period_of_several_optimizers(run: Run) -> None:
    analysis = run(
        f"""
        critic = nn.Linear(64, 1, bias=False)
        of_critic = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
        of_generator = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(16):
            for _ in range(5):
                of_critic.zero_grad()
                critic(model(torch.randn({ROWS}, 64)).detach()).mean().backward()
                of_critic.step()
            of_generator.zero_grad()
            critic(model(torch.randn({ROWS}, 64))).mean().backward()
            of_generator.step()
        """
    )
    assert analysis.steps.found_by == "optimizer steps (Adam), the longest period of 2 optimizers"
    assert analysis.steps.timed == 3
    forward, of_critic = 2 * ROWS * 2 * WEIGHT, 2 * ROWS * 64
    # The critic: forward and its weight's gradient; the generator: all through both.
    expected = 5 * (forward + 2 * of_critic) + (TRAINING + 3 * of_critic)
    assert utilization(analysis).model_flops == expected


def test_a_checkpointed_modules_second_forward_is_no_step(run: Run) -> None:
    analysis = run(
        f"""
        from torch.utils.checkpoint import checkpoint
        for _ in range(12):
            x = torch.randn({ROWS}, 64, requires_grad=True)
            checkpoint(model, x, use_reentrant=False).square().mean().backward()
        """
    )
    assert analysis.steps.found_by == "forward calls of Sequential"
    assert (analysis.steps.timed, analysis.steps.profiled) == (3, 2)
    assert not any("torch.profiler itself" in sentence for sentence in analysis.warnings)
    # Both gradients of both products; the second forward ends before its second product.
    use = utilization(analysis)
    assert use.model_flops == 2 * ROWS * WEIGHT * 6
    assert use.hardware_flops == 2 * ROWS * WEIGHT * 7


def test_a_program_on_the_meta_device_computes_nothing(run: Run) -> None:
    analysis = run(
        f"""
        model = model.to("meta")
        for _ in range(12):
            model(torch.empty({ROWS}, 64, device="meta"))
        """
    )
    assert analysis.utilization is None
    assert analysis.ops == ()
    assert any("meta device" in sentence for sentence in analysis.warnings)
