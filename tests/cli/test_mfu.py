"""`gpuprof mfu` as a process of its own."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fork_server import ForkServer

ROOT = Path(__file__).parent.parent
CAPTURE = ROOT / "data" / "captures" / "h200_llama_block"
CASES = ROOT.parent.parent / "shared" / "cases" / "mfu-config"


Mfu = Callable[..., "subprocess.CompletedProcess[str]"]
Figures = Callable[..., dict[str, Any]]


@pytest.fixture
def mfu(tmp_path: Path, gpuprof_environment: dict[str, str], server: ForkServer) -> Mfu:
    """Run `gpuprof mfu ARGUMENTS` and return what it printed."""

    def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
        return server.run(
            *("-m", "gpuprof", "mfu", *map(str, arguments)),
            folder=tmp_path,
            environment={**gpuprof_environment, "COLUMNS": "120"},
        )

    return run


@pytest.fixture
def figures(mfu: Mfu) -> Figures:
    """The same as JSON, decoded."""

    def run(*arguments: object) -> dict[str, Any]:
        result = mfu(*arguments, "--json")
        assert (result.returncode, result.stderr) == (0, "")
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    return run


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    if not CASES.exists():
        pytest.skip("the shared cases are not beside this checkout")
    found: dict[str, Any] = json.loads((CASES / "numbers.json").read_text())
    return found


DENSE = (
    *("--params", 8030261248, "--layers", 32, "--hidden", 4096, "--heads", 32),
    *("--head-dim", 128, "--sequence", 8192, "--vocabulary", 128256),
)


def test_a_dense_model(figures: Figures, answers: dict[str, Any]) -> None:
    found = figures(*DENSE, "--tokens-per-second", 8000, "--peak", "989.4T")
    expected = answers["dense"]
    assert found["parameters"] == 7504924672
    assert found["flops_per_token"] == expected["flops_per_token_full"]
    assert found["flops_per_token_causal_half"] == expected["flops_per_token_causal_half"]
    assert found["mfu"] == pytest.approx(expected["mfu_full"], rel=1e-12)
    assert found["mfu_causal_half"] == pytest.approx(expected["mfu_causal_half"], rel=1e-12)


def test_a_jobs_tokens_are_shared_by_its_gpus(figures: Figures, answers: dict[str, Any]) -> None:
    found = figures(
        *("--params", "70B", "--tokens", 16384000, "--step-time", "48600s"),
        *("--gpus", 16, "--peak", "312e12"),
    )
    expected = answers["global-vs-local"]
    assert found["flops_per_s"] == pytest.approx(expected["per_gpu"], rel=1e-12)
    assert found["mfu"] == pytest.approx(expected["mfu"], rel=1e-12)


def test_a_mixture_of_experts(figures: Figures, answers: dict[str, Any]) -> None:
    found = figures(
        *("--params", "46.7B", "--active-params", "12.9B", "--tokens-per-second", 3000),
        *("--device", "H100 80GB HBM3"),
    )
    assert found["mfu"] == pytest.approx(answers["moe"]["mfu"], rel=1e-12)
    assert "NVIDIA H100 SXM5" in found["peak_label"]


def test_adapters_on_frozen_weights(figures: Figures, answers: dict[str, Any]) -> None:
    found = figures(
        *("--params", "7B", "--lora-params", "40M", "--tokens-per-second", 6000),
        *("--peak", "312T"),
    )
    assert found["mfu"] == pytest.approx(answers["lora"]["mfu"], rel=1e-12)


def test_decoding_is_measured_in_bytes(figures: Figures, answers: dict[str, Any]) -> None:
    found = figures(
        *("--decode", "--params", "7e9", "--kv-bytes", 1073741824, "--batch", 8),
        *("--step-time", "9ms", "--peak", "312T", "--bandwidth", "2039e9"),
    )
    assert found["mbu"] == pytest.approx(answers["decode-mbu"]["mbu"], rel=1e-12)
    assert found["mfu"] == pytest.approx(answers["decode-mbu"]["mfu"], rel=1e-12)


def test_keys_and_values_follow_from_the_model(figures: Figures) -> None:
    found = figures(
        *("--decode", "--params", "7B", "--layers", 32, "--hidden", 4096, "--heads", 32),
        *("--kv-heads", 8, "--sequence", 2048, "--batch", 4, "--step-time", "10ms"),
        *("--bandwidth", "3.35T", "--weight-bits", 4),
    )
    assert found["key_value_bytes"] == 2 * 32 * (8 * 128) * 2048 * 4 * 2
    assert found["weight_bytes"] == 7_000_000_000 // 2
    bytes_read = found["key_value_bytes"] + found["weight_bytes"]
    assert found["mbu"] == pytest.approx(bytes_read / 10e-3 / 3.35e12)


def test_a_window_bounds_the_keys_that_a_query_sees(figures: Figures) -> None:
    windowed = figures(*DENSE, "--window", 1024)
    assert windowed["flops_per_token"] == 6 * 7504924672 + 12 * 32 * 4096 * 1024


def test_checkpointing_shows_in_hfu_only(figures: Figures) -> None:
    found = figures(*DENSE, "--recompute", "--tokens-per-second", 8000, "--peak", "989.4T")
    assert found["hfu"] == pytest.approx(found["mfu"] * 4 / 3)


def test_what_was_left_out_is_said(mfu: Mfu) -> None:
    result = mfu("--params", "7B")
    assert result.returncode == 0
    assert "6 N, forward and backward" in result.stdout
    assert "Attention's scores are left out" in result.stdout
    assert "MFU" not in result.stdout


def test_over_the_peak_is_flagged(mfu: Mfu) -> None:
    result = mfu("--params", "70B", "--tokens-per-second", 8000, "--peak", "989.4T")
    assert "340%" in result.stdout
    assert "peak or count wrong" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "give --params"),
        (("--params", "7x"), "no amount such as 7B"),
        (("--params", "-1"), "not above 0"),
        (("--params", "0"), "not above 0"),
        (("--params", "7.5"), "not a whole number"),
        (("--params", "7B", "--device", "H100"), "could be"),
        (("--params", "7B", "--vocabulary", "32000"), "--vocabulary needs --hidden"),
        (("--params", "7B", "--active-params", "8B"), "more than --params"),
        (("--params", "7B", "--step-time", "1"), "--step-time needs"),
        (("--params", "7B", "--inference", "--recompute"), "--recompute is for training"),
        (("--params", "7B", "--experts", "8"), "given together"),
    ],
)
def test_options_that_do_not_fit_are_usage_errors(
    mfu: Mfu, arguments: tuple[str, ...], problem: str
) -> None:
    result = mfu(*arguments)
    assert result.returncode == 2
    assert problem in result.stderr
    assert "Traceback" not in result.stderr


def test_a_capture_without_its_model_asks_for_the_parameters(mfu: Mfu) -> None:
    result = mfu(CAPTURE)
    assert result.returncode == 2
    assert "give --params" in result.stderr


def test_a_capture_is_explained_from_its_dimensions(mfu: Mfu, figures: Figures) -> None:
    # A Llama-2-7B block, trained on 2 x 2048 random vectors: no embedding, no head.
    parameters = 4 * 4096**2 + 3 * 4096 * 11008
    found = figures(
        CAPTURE, "--params", parameters, "--layers", 1, "--hidden", 4096, "--sequence", 2048
    )
    tokens = 2 * 2048
    assert found["tokens"] == tokens
    assert found["flops"] == (6 * parameters + 12 * 4096 * 2048) * tokens
    assert (found["differences"], found["unexplained"]) == ([], 0)
    table = mfu(CAPTURE, "--params", parameters).stdout
    assert "counted by operators: MFU" in table
    assert "attention scores, recomputed in the backward pass" in table


def test_a_capture_that_does_more_than_told_has_a_rest(figures: Figures) -> None:
    parameters = 4 * 4096**2 + 2 * 4096 * 11008
    found = figures(CAPTURE, "--params", parameters)
    assert found["unexplained"] == 6 * 4096 * 11008 * found["tokens"]


_CHECKPOINTED = """
import sys
import gpuprof
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(64, 256, bias=False)
        self.narrow = nn.Linear(256, 64, bias=False)

    def forward(self, x):
        # The backward pass needs its result, so that checkpointing repeats both products.
        return x + torch.tanh(self.narrow(torch.tanh(self.wide(x))))

model = nn.Sequential(*(Layer() for _ in range(3)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(9):
    x = torch.randn(32, 64, requires_grad=True)
    for layer in model:
        x = checkpoint(layer, x, use_reentrant=sys.argv[1] == "reentrant")
    x.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    gpuprof.step(tokens=32)
"""


@pytest.mark.parametrize("kind", ["reentrant", "not-reentrant"])
def test_a_run_with_checkpointing_executes_four_thirds_of_its_model(
    figures: Figures,
    tmp_path: Path,
    server: ForkServer,
    gpuprof_environment: dict[str, str],
    kind: str,
) -> None:
    script, capture = tmp_path / "train.py", tmp_path / "train.gpuprof"
    script.write_text(_CHECKPOINTED)
    done = server.run(
        *("-m", "gpuprof", "run", "-q", "--warmup", "2", "--timed", "2", "--profiled", "2"),
        *("-o", capture.name, script.name, kind),
        folder=tmp_path,
        environment=gpuprof_environment,
    )
    assert done.returncode == 0, done.stderr
    analysis = json.loads((capture / "analysis.json").read_bytes())
    use, steps = analysis["utilization"], analysis["steps"]
    parameters = 3 * 2 * 64 * 256
    assert use["model_flops"] == 6 * parameters * 32
    assert use["hardware_flops"] == 8 * parameters * 32
    assert use["checkpointed_flops"] == 2 * parameters * 32
    assert use["hfu"] == pytest.approx(use["mfu"] * 4 / 3)
    assert steps["tokens_per_s"] == pytest.approx(32 / (steps["median_ns"] / 1e9))
    form = figures(capture)
    assert (form["parameters"], form["tokens"]) == (parameters, 32)
    assert (form["differences"], form["unexplained"]) == ([], 0)


@pytest.mark.parametrize("name", ["h200_llama_block", "h100_llama_block"])
def test_parameters_of_another_model_are_refused(mfu: Mfu, name: str) -> None:
    for parameters in ("1", "1000"):
        result = mfu(CAPTURE.with_name(name), "--params", parameters)
        assert (result.returncode, result.stdout) == (2, "")
        assert len(result.stderr.splitlines()) == 1
        assert f"--params {int(parameters):,}: the" in result.stderr
