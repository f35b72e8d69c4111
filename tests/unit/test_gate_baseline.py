"""Baselines: what is kept, what they refuse, and how a gate stands against one."""

import gzip
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.manifest import Device, Fingerprint
from gpuprof.profiler.cli import main
from gpuprof.profiler.commands.baseline import stored_baselines
from gpuprof.profiler.configuration.targets import Target
from gpuprof.profiler.gate.baseline import (
    Baseline,
    BaselineFolder,
    baseline_of,
    blessed,
    read_baseline,
    stored_side,
)
from gpuprof.profiler.gate.results import read_result
from gpuprof.reports.gate.baselines import baseline_table
from gpuprof.roofline.gate.cumulative import changes_since
from gpuprof.roofline.gate.measurement import Measurement
from gpuprof.roofline.gate.result import GATE_FILE, GateResult, SideInfo
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.series import Side
from gpuprof.roofline.gate.suite import MeasuredProcess

H100 = Device(index=0, kind="cuda", name="H100", total_memory_bytes=85, multiprocessors=132)
HERE = Fingerprint(devices=(H100,), driver="550.54")
TRAIN = Target(name="train", script="train.py")


def stolen(pair: int, lost: int) -> MeasuredProcess:
    """A process of which others had the core for `lost` of its five steps."""
    whole = process("A", pair)
    measured = msgspec.structs.replace(
        whole.measurements["train"],
        discarded=tuple(range(lost)),
        discard_reasons=("other programs had the core",),
    )
    return msgspec.structs.replace(whole, measurements={"train": measured})


def process(side: Side, pair: int, time: float = 1e6, **more: Any) -> MeasuredProcess:
    # Not all alike, or any difference would be beyond doubt.
    level = time * (1 + 0.002 * (pair % 3))
    return MeasuredProcess(
        target="train",
        side=side,
        pair=pair,
        first=True,
        measurements={"train": Measurement(samples_ns=(round(level),) * 5)},
        **more,
    )


def result_of(*processes: MeasuredProcess, fingerprint: Fingerprint = HERE) -> GateResult:
    return GateResult(
        tool_version="1",
        created_ns=1_800_000_000_000_000_000,
        base=SideInfo(label="main"),
        head=SideInfo(label="the working tree", commit="abc1234def", fingerprint=fingerprint),
        settings=RuleSettings(),
        judgements=(),
        processes=processes,
    )


def baseline(count: int = 5, **more: Any) -> Baseline:
    result = result_of(*(process("B", pair) for pair in range(count)))
    return msgspec.structs.replace(baseline_of(result, "v1", (TRAIN,)), **more)


def test_the_head_side_of_a_gate_becomes_the_base_side_of_later_ones() -> None:
    found = baseline_of(
        result_of(
            process("A", 0, 9e6),
            process("B", 1, 3e6),
            process("B", 0, 2e6, contamination="1 other process used the GPU"),
            process("B", 2, 4e6),
        ),
        "v1",
    )

    # Contaminated processes are left out, and the pairs count from 0 again.
    assert [(p.side, p.pair) for p in found.processes] == [("A", 0), ("A", 1)]
    assert found.processes[0].measurements["train"].samples_ns[0] == round(3e6 * 1.002)
    assert (found.info.label, found.info.commit) == ("baseline v1", "abc1234def")


def test_a_baseline_keeps_no_secrets_and_is_the_base_for_others_all_the_same() -> None:
    given = msgspec.structs.replace(TRAIN, arguments=("--wandb-key", "pa55", "--steps", "3"))
    result = result_of(*(process("B", pair) for pair in range(5)))
    stored = baseline_of(result, "main", (given,))
    assert b"pa55" not in msgspec.json.encode(stored)
    other = msgspec.structs.replace(given, arguments=("--wandb-key", "xyz", "--steps", "3"))
    assert stored_side(stored, (other,), RuleSettings())
    more = msgspec.structs.replace(given, arguments=("--wandb-key", "pa55", "--steps", "4"))
    with pytest.raises(CommandError, match="with other settings"):
        stored_side(stored, (more,), RuleSettings())


def test_a_failed_or_empty_head_is_no_baseline() -> None:
    with pytest.raises(CommandError, match="train: it exited with 1"):
        baseline_of(result_of(process("B", 0, failure="it exited with 1")), "v1")
    with pytest.raises(CommandError, match="no process of the head is usable"):
        baseline_of(result_of(process("A", 0)), "v1")


def test_a_baseline_comes_back_from_its_file_by_name_and_by_path(tmp_path: Path) -> None:
    folder = BaselineFolder(tmp_path / "kept")

    file = folder.save(baseline())

    assert file == tmp_path / "kept" / "v1.json.gz"
    assert folder.load("v1") == folder.load(str(file)) == baseline()
    first = file.read_bytes()
    folder.save(baseline())
    assert file.read_bytes() == first
    # Read by hand and written by hand, it need not be compressed.
    plain = tmp_path / "plain.json"
    plain.write_bytes(gzip.decompress(first))
    assert folder.load(str(plain)) == baseline()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no baseline"),
        (b"\x1f\x8b broken", "is no baseline"),
        (gzip.compress(b'{"schema_version": 1}', mtime=0)[:-9], "is no baseline"),
        (b'{"schema_version": 1}', "missing required field"),
        (b'{"schema_version": 7}', "schema version 7; upgrade gpuprof"),
    ],
)
def test_a_file_that_is_none_is_told_in_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "x.json.gz"
    file.write_bytes(content)

    with pytest.raises(CommandError, match=said) as caught:
        read_baseline(file)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "../v1", "a/b", ".hidden", "a b"])
def test_names_that_are_no_file_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CommandError, match="is no name of a baseline"):
        BaselineFolder(tmp_path).file(name)


def test_a_missing_baseline_has_the_exit_code_that_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"no baseline .*v9\.json\.gz") as caught:
        BaselineFolder(tmp_path).load("v9", missing=3)
    assert caught.value.exit_code == 3


def test_a_pin_and_blessings_show_in_the_list(tmp_path: Path) -> None:
    folder = BaselineFolder(tmp_path)
    with pytest.raises(CommandError, match="there is no baseline"):
        folder.pin("v1")
    assert folder.pinned() is None
    folder.save(blessed(baseline(), "  a slower, safer kernel "))
    folder.save(msgspec.structs.replace(baseline(), name="v0", created_ns=1))
    folder.pin("v1")

    assert [one.name for one in folder.all()] == ["v0", "v1"]
    (blessing,) = folder.load("v1").blessings
    assert blessing.reason == "a slower, safer kernel"
    assert blessing.user
    table = baseline_table(stored_baselines(folder))
    names, blessings = (list(table.columns[i].cells) for i in (0, 5))
    assert [str(name) for name in names] == ["v0", "v1 (pinned)"]
    assert str(blessings[1]).endswith(": a slower, safer kernel")
    with pytest.raises(CommandError, match="--reason is empty"):
        blessed(baseline(), " ")


def test_a_gates_base_is_advisory_and_has_the_environment_of_each_target() -> None:
    side = stored_side(baseline(), (TRAIN, Target(name="other", script="other.py")), RuleSettings())

    assert side.fingerprints == {"train": HERE}
    assert len(side.processes) == 5
    assert side.other_session.startswith("v1, 2027-01-15")


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        (baseline(4), "has 4 processes of train, and the first look needs 5"),
        (baseline(targets={"train": Target(name="train", script="old.py")}), "other settings"),
        (
            baseline(processes=(msgspec.structs.replace(process("A", 0), target="infer"),)),
            "has no target of this gate, only infer",
        ),
        (
            # Two of five steps may be lost, three may not.
            baseline(processes=tuple(stolen(pair, 2 + pair % 2) for pair in range(8))),
            r"has 4 usable of 8 processes of train \(other programs had the core\), and the first",
        ),
        (
            baseline(processes=tuple(process("A", pair, 0.1) for pair in range(5))),
            "has a damaged process of train: a sample is 0.0; save it again",
        ),
    ],
)
def test_what_cannot_be_the_base_is_incomparable(stored: Baseline, said: str) -> None:
    with pytest.raises(CommandError, match=said) as caught:
        stored_side(stored, (TRAIN,), RuleSettings())
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("processes", "said"),
    [
        (4, "has 4 processes of train, and the first look needs 5"),
        (5, ""),
    ],
)
def test_what_a_gate_would_refuse_is_not_saved(
    processes: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    result = result_of(*(process("B", pair) for pair in range(processes)))
    (tmp_path / GATE_FILE).write_bytes(msgspec.json.encode(result))

    status = main(["baseline", "save", "v1", "--from", GATE_FILE])

    assert status == (2 if said else 0)
    assert said in capsys.readouterr().err
    assert (tmp_path / "gpuprof-baselines" / "v1.json.gz").exists() == (not said)


@pytest.mark.parametrize("trusted", [False, True])
def test_what_has_added_up_since_the_pinned_baseline_is_a_verdict_of_its_own(
    trusted: bool,
) -> None:
    head = [process(side, pair, 1.15e6) for side in ("A", "B") for pair in range(5)]  # type: ignore[arg-type]
    settings = RuleSettings()

    known = baseline()
    old = (known.name, known.info, known.processes)
    (slower,) = changes_since(*old, result_of(*head), settings, 0.1, trusted=trusted)
    (within,) = changes_since(*old, result_of(*head), settings, 0.3, trusted=trusted)

    assert (slower.metric.name, slower.verdict) == ("time since v1", "REGRESSED")
    assert slower.change == pytest.approx(0.15, abs=0.001)
    assert slower.fails is trusted
    assert within.verdict == "PASS"


def test_creep_in_another_environment_is_incomparable() -> None:
    other = msgspec.structs.replace(HERE, driver="570.1")
    head = [process("B", pair) for pair in range(5)]

    known = baseline()
    (found,) = changes_since(
        known.name,
        known.info,
        known.processes,
        result_of(*head, fingerprint=other),
        RuleSettings(),
        0.1,
        trusted=False,
    )

    assert (found.verdict, found.message) == ("INCOMPARABLE", "driver: 550.54 against 570.1")


def test_a_gates_result_is_read_from_its_folder_or_file(tmp_path: Path) -> None:
    result = result_of(process("B", 0))
    (tmp_path / GATE_FILE).write_bytes(msgspec.json.encode(result))

    assert read_result(tmp_path) == read_result(tmp_path / GATE_FILE) == result
    (tmp_path / GATE_FILE).write_bytes(b"[]")
    with pytest.raises(CommandError, match="is no gate's result"):
        read_result(tmp_path)
    (tmp_path / GATE_FILE).write_bytes(b'{"schema_version": 99}')
    with pytest.raises(CommandError, match="schema version 99; upgrade gpuprof"):
        read_result(tmp_path)
    with pytest.raises(CommandError, match="No such file"):
        read_result(tmp_path / "nowhere")
