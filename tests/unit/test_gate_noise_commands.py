"""The commands around a gate, without measuring: what they print, and what they refuse."""

import argparse
import gzip
import inspect
import re
from pathlib import Path

import msgspec
import polars as pl
import pytest
from json_documents import read_answer

from gpuprof.collectors.manifest import Device, Fingerprint
from gpuprof.profiler.cli import main
from gpuprof.profiler.commands.gate_actions import ACTIONS, Action
from gpuprof.profiler.configuration.targets import Target
from gpuprof.profiler.gate.calibration_store import CalibrationStore, NoiseSession
from gpuprof.profiler.gate.history import History
from gpuprof.roofline.gate.history import Value
from gpuprof.roofline.gate.measurement import Measurement
from gpuprof.roofline.gate.suite import MeasuredProcess


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "gpuprof.toml").write_text('[gate]\npairs = [2]\n[[target]]\nscript = "speed.py"\n')
    # Not a repository, nor inside one.
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_each_action_has_a_section_that_names_its_options_and_a_text_that_fits(
    action: Action,
) -> None:
    parser = argparse.ArgumentParser(prog="gpuprof", add_help=False)
    action.prepare_parser(parser)
    options = re.findall(r"(?<=[\[ ])--?[a-z][a-z-]*", parser.format_usage())
    file = "gate_results.md" if action.name == "results" else "gate_noise.md"
    page = (Path(__file__).parents[2] / "docs" / file).read_text()

    assert f"# `gpuprof gate {action.name}`" in page
    assert [option for option in options if f"`{option}" not in page] == []
    assert max(len(line) for line in (inspect.getdoc(action) or "").splitlines()) <= 80


def test_a_plan_says_the_pairs_the_time_and_what_it_rests_on(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = Device(index=0, kind="cuda", name="H100", total_memory_bytes=85, multiprocessors=132)
    session = NoiseSession(
        tool_version="1",
        created_ns=1_800_000_000_000_000_000,
        project=str(folder),
        target=Target(script="speed.py"),
        fingerprint=Fingerprint(devices=(device,)),
        rebuilt=False,
        seconds=4.0,
        differences={"speed": {"time": tuple(0.01 * (-1) ** i for i in range(40))}},
    )
    CalibrationStore(folder).add(session)

    assert main(["gate", "plan", "--effect", "5%"]) == 0

    lines = capsys.readouterr().out.splitlines()
    name, sd, pairs, seconds, unit, detects = lines[2].split()
    assert (name, sd, unit) == ("speed", "1.0%", "s")
    assert float(seconds) == 2 * int(pairs) * 4
    assert 0 < float(detects.removesuffix("%")) < 10
    assert lines[-1] == "speed: from 1 session on H100, the last of 2027-01-15 08:00 UTC."


def test_a_history_is_shown_and_exported_and_plotted(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # No otava there.
    monkeypatch.setenv("PATH", str(folder))
    values = [
        Value(
            gate=f"g{gate}",
            measured_ns=gate * 10**9,
            branch="main",
            fingerprint="f",
            device="H100",
            benchmark=benchmark,
            metric="time",
            unit="ns",
            pair=0,
            value=1e6 * (1 + gate),
        )
        for gate in range(2)
        for benchmark in ("train", "infer")
    ]
    History(folder / "gpuprof-history.sqlite").add(values)

    assert main(["history", "show", "--benchmark", "tr*"]) == 0
    shown = capsys.readouterr().out
    assert "train" in shown
    assert "+100.0%" in shown
    assert "infer" not in shown
    assert shown.endswith("Change points need Apache Otava: `pipx install apache-otava`.\n")

    assert main(["history", "export", "h.parquet"]) == 0
    assert pl.read_parquet(folder / "h.parquet")["value"].to_list() == [1e6, 1e6, 2e6, 2e6]
    assert main(["history", "plot", "h.html"]) == 0
    assert "Apache Otava" in (folder / "h.html").read_text()
    assert main(["history", "plot", "h.html"]) == 1
    assert "exists" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["recording.json", "recording.json.gz"])
def test_a_recording_is_tested_without_measuring(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    processes = [
        MeasuredProcess(
            target="speed",
            side="A",
            pair=index,
            first=True,
            measurements={"speed": Measurement(samples_ns=(10**6 + 1000 * (index % 3),) * 5)},
        )
        for index in range(12)
    ]
    content = msgspec.json.encode(processes)
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)

    options = f"--recording {name} --gates 20 --effect 10% --json rates.json"
    assert main(["gate", "selftest", *options.split()]) == 0

    assert "False alarms: 0.0% [0.0%, 16.8%] of the gates." in capsys.readouterr().out
    rates = read_answer((folder / "rates.json").read_text())
    assert rates["schema"]["name"] == "gate_selftest"
    assert rates["found"] == {"hits": 20, "gates": 20}


def test_a_recording_that_was_cut_off_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "cut.json.gz").write_bytes(gzip.compress(b"[" + b" " * 10_000)[:-4])

    assert main(["gate", "selftest", "--recording", "cut.json.gz"]) == 2
    assert "cut.json.gz, byte 10001: its gzip stream ends early" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        ("gate plan", "nothing is known of the noise of speed here", 2),
        ("gate plan --effect much", "--effect is 'much'; write it like", 2),
        ("gate calibrate --pairs 1", "--pairs is 1; it is at least 2", 2),
        ("gate calibrate --rebuild", "--rebuild needs a git repository with a commit", 2),
        ("gate selftest --processes 3", "--processes is 3; it is at least 6", 2),
        ("gate --baseline v9", "there is no baseline gpuprof-baselines/v9.json.gz", 3),
        ("baseline save a/b", "'a/b' is no name of a baseline", 2),
        ("baseline bless v1", "bless needs --reason TEXT", 2),
        ("baseline save v1 --from gpuprof.toml", "gpuprof.toml is no gate's result", 2),
        ("history show", "there is no history gpuprof-history.sqlite", 2),
        ("history plot page.pdf", "plot needs one file *.html to write", 2),
    ],
)
def test_wrong_use_is_one_line_and_measures_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: str, said: str, code: int
) -> None:
    assert main(arguments.split()) == code

    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("gpuprof: ")
    assert said in line
