"""What trackers get of an analysis, and `gpuprof export --to` without their packages."""

import argparse
import sys
from pathlib import Path

import msgspec
import pytest

from gpuprof.collectors.errors import CommandError, MissingDependencyError
from gpuprof.profiler.commands.export import ExportCommand
from gpuprof.reports.tracked_run import tracked_run
from gpuprof.roofline.analysis import Analysis, Coverage

CAPTURE = Path(__file__).parents[1] / "data" / "captures" / "h200_llama_block"


def export(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command = ExportCommand()
    command.prepare_parser(parser)
    return command.run(parser.parse_args([str(CAPTURE), *arguments]))


def test_figures_are_those_of_the_analysis(training_analysis: Analysis) -> None:
    figures = tracked_run(training_analysis).figures
    shares, split = training_analysis.utilization, training_analysis.split
    assert shares is not None
    assert split is not None
    assert figures["step_time_ms"] == pytest.approx(12.915)
    assert figures["mfu"] == shares.mfu
    assert figures["split/launch_ms"] == split.parts[-1].nanoseconds / 1e6
    parts = [value for name, value in figures.items() if name.startswith("split/")]
    assert sum(parts) == pytest.approx(figures["step_time_ms"])


def test_what_is_unknown_is_not_sent(bare_analysis: Analysis, cpu_analysis: Analysis) -> None:
    assert tracked_run(bare_analysis).figures == {}
    assert set(tracked_run(cpu_analysis).figures) == {"step_time_ms", "tokens_per_s"}


def test_shares_of_a_peak_that_the_report_calls_unknown_are_not_sent(
    training_analysis: Analysis,
) -> None:
    little = Coverage(device_ns=1000, with_op=1.0, with_flops=0.4, with_bytes=0.4)
    figures = tracked_run(msgspec.structs.replace(training_analysis, coverage=little)).figures
    assert "mfu" not in figures
    assert "step_time_ms" in figures


def test_facts_name_the_machine_and_the_steps(training_analysis: Analysis) -> None:
    run = tracked_run(training_analysis)
    assert run.name == "train_transformer.py"
    assert run.facts["steps"] == "optimizer steps (AdamW)"
    assert run.facts["device"] == "NVIDIA H100 80GB HBM3"
    assert "step" not in run.facts
    assert run.page.startswith("<!DOCTYPE html>")
    assert "### What the figures rest on" in run.summary
    assert "<details>" not in run.summary


@pytest.mark.parametrize(
    ("tracker", "package", "module"),
    [
        ("wandb", "wandb", "weights_and_biases"),
        ("mlflow", "mlflow", "mlflow_server"),
        ("tensorboard", "tensorboard.compat.proto.event_pb2", "tensorboard_files"),
    ],
)
def test_a_package_that_is_missing_is_named_before_any_work(
    monkeypatch: pytest.MonkeyPatch, tracker: str, package: str, module: str
) -> None:
    monkeypatch.delitem(sys.modules, f"gpuprof.profiler.trackers.{module}", raising=False)
    # None in its place is what Python itself takes for "there is no such module".
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match=f"pip install {tracker}$"):
        export("--to", tracker)


def test_a_folder_is_for_tensorboard(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="-o is the folder of --to tensorboard"):
        export("--to", "mlflow", "-o", str(tmp_path))


def test_a_form_and_a_tracker_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        export("--to", "mlflow", "--format", "csv")
    assert "not allowed with" in capsys.readouterr().err
