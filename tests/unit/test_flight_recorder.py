"""Dumps of torch's flight recorder: read as data, and who hangs in which collective."""

import gzip
import pickle
import random
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.flight_recorder import reader
from gpuprof.collectors.opening import open_trace, open_traces
from gpuprof.reports.html.page import render_html
from gpuprof.reports.markdown import INVISIBLE_SPACE, render_markdown
from gpuprof.reports.sections.recorder import stuck_sentence
from gpuprof.reports.terminal import render_summary
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.ranks.rank_text import ranks_text
from gpuprof.roofline.ranks.recorder import recorder_findings
from gpuprof.roofline.ranks.summarise import all_summaries
from gpuprof.roofline.recorder_figures import RecorderFindings, StuckCollective

# Two processes of gloo, torch 2.13: three all-reduces, an all-gather in a group of its own, then
# one more all-reduce that rank 1 never came to.
DATA = Path(__file__).parents[1] / "data" / "flight_recorder"
NAMES = ("nccl_trace_rank_0", "nccl_trace_rank_1")


def entry(
    sequence: int,
    name: str = "nccl:all_reduce",
    state: str = "completed",
    *,
    group: tuple[str, str] = ("0", "default_pg"),
    elements: int = 1024,
    **more: object,
) -> dict[str, Any]:
    """One record as torch 2.9 writes it."""
    return {
        "frames": [
            {"name": "all_reduce", "filename": "/x/site-packages/torch/c10d.py", "line": 1},
            {"name": "step", "filename": "/home/me/train.py", "line": 40 + sequence},
        ],
        "record_id": sequence,
        "pg_id": 0,
        "process_group": group,
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "op_id": sequence,
        "profiling_name": name,
        "time_created_ns": 1_795_913_387_000_000_000 + sequence,
        "input_sizes": [[elements, 2]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[elements, 2]],
        "output_dtypes": ["BFloat16"],
        "state": state,
        "time_discovered_started_ns": None if state == "scheduled" else 5,
        "time_discovered_completed_ns": 6 if state == "completed" else None,
        "retired": state == "completed",
        "timeout_ms": 600_000,
        "is_p2p": False,
        **more,
    }


def dumped(
    folder: Path, ranks: dict[int, list[dict[str, Any]]], members: str = "[0, 1, 2, 3]"
) -> Capture:
    """The dumps of `ranks` read from files, as torch names them."""
    for rank, entries in ranks.items():
        dump = {
            "version": "2.9",
            "nccl_version": "2.28.9",
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": members}},
            "pg_status": {"0": {"last_enqueued_collective": 5}},
            "entries": entries,
        }
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))
    return open_trace(folder)


def found(capture: Capture) -> RecorderFindings:
    findings = recorder_findings(all_summaries(capture))
    assert findings is not None
    return findings


def the_stuck(capture: Capture) -> StuckCollective:
    (stuck,) = found(capture).stuck
    return stuck


def test_what_torch_wrote_is_read(tmp_path: Path) -> None:
    capture = open_traces([DATA / name for name in NAMES])
    assert capture.manifest.ranks == (0, 1)
    records = capture.collective_records
    of_both = ["all_reduce", "all_reduce", "all_reduce", "all_gather"]
    assert records["collective"].to_list() == [*of_both, "all_reduce", *of_both]
    # 1000 floats; an all-gather's message is what is gathered: 2 ranks, 5 floats each.
    assert set(records["message_bytes"]) == {4000, 40}
    stuck = the_stuck(capture)
    assert (stuck.waiting, stuck.not_entered, stuck.sequence) == ((0,), (1,), 4)
    assert stuck.calls[0].line == "/home/me/train/fr.py:14 <module>"
    # Gloo does not tell who is in a group.
    assert not stuck.members_known
    said = stuck_sentence(stuck)
    assert "rank 0 waits in all_reduce #4 of group 0 (default_pg) (4.00 kB" in said
    assert "rank 1 has not entered it: the last of rank 1 is all_gather #1 of group 1" in said
    # Nor is "#4" an issue there.
    page = render_markdown(analyze(capture)).replace("\\", "").replace(INVISIBLE_SPACE, "")
    assert said.partition(" (4.00 kB")[0].capitalize() in page
    # Its JSON form, which has no stacks and says 0 for unknown times; and one compressed.
    (tmp_path / "rank_0.gz").write_bytes(gzip.compress((DATA / NAMES[0]).read_bytes()))
    other = open_traces([tmp_path / "rank_0.gz", DATA / "rank_1.json"])
    without = records.drop("stack", "started_ns")
    assert other.collective_records.drop("stack", "started_ns").equals(without)
    assert the_stuck(other).waiting == (0,)


def test_the_rank_that_did_not_come_is_named(tmp_path: Path) -> None:
    done = [entry(number) for number in range(1, 4)]
    waits = [*done, entry(4, state="started", retired=True), entry(5, state="scheduled")]
    stuck = the_stuck(dumped(tmp_path, {0: waits, 1: waits, 2: waits, 3: done}))
    assert (stuck.sequence, stuck.waiting, stuck.not_entered) == (4, (0, 1, 2), (3,))
    assert (stuck.left, stuck.unknown, stuck.behind) == ((), (), 1)
    (last,) = stuck.last_calls
    assert (last.sequence, last.finished, last.line) == (3, True, "/home/me/train.py:43 step")
    said = stuck_sentence(stuck)
    assert "ranks 0-2 wait in all_reduce #4" in said
    assert "rank 3 has not entered it" in said


def test_of_a_rank_without_a_dump_nothing_is_said(tmp_path: Path) -> None:
    waits = [entry(1), entry(2, state="started")]
    stuck = the_stuck(dumped(tmp_path, {0: waits, 2: [entry(1)]}))
    assert (stuck.waiting, stuck.not_entered, stuck.unknown) == ((0,), (2,), (1, 3))
    assert "of ranks 1, 3 nothing is known" in stuck_sentence(stuck)


def test_other_kinds_and_sizes_are_named(tmp_path: Path) -> None:
    ours = [entry(1), entry(2, state="started")]
    gather = [entry(1), entry(2, "nccl:all_gather", "started")]
    stuck = the_stuck(dumped(tmp_path, {0: ours, 1: ours, 2: ours, 3: gather}))
    assert [(call.collective, call.ranks) for call in stuck.calls] == [
        ("all_reduce", (0, 1, 2)),
        ("all_gather", (3,)),
    ]
    assert "ranks disagree: ranks 0-2 all_reduce; rank 3 all_gather" in stuck_sentence(stuck)
    smaller = [entry(1, elements=8), entry(2, state="started")]
    findings = found(dumped(tmp_path, {0: ours, 1: ours, 2: ours, 3: smaller}))
    # A collective of unequal sizes may end, and be wrong all the same.
    (different,) = findings.disagreements
    assert (different.sequence, [call.ranks for call in different.calls]) == (1, [(0, 1, 2), (3,)])
    assert "[[8,2]]" in different.calls[1].tensors


def test_unequal_sizes_of_an_all_to_all_are_no_disagreement(tmp_path: Path) -> None:
    ranks = {rank: [entry(1, "nccl:all_to_all", elements=rank + 1)] for rank in range(4)}
    findings = found(dumped(tmp_path, ranks))
    assert findings.stuck == findings.disagreements == ()


def test_where_all_have_entered_the_transfer_itself_is_suspected(tmp_path: Path) -> None:
    waits = [entry(1), entry(2, state="started")]
    stuck = the_stuck(dumped(tmp_path, dict.fromkeys(range(4), waits)))
    assert (stuck.waiting, stuck.not_entered) == ((0, 1, 2, 3), ())
    assert "all ranks have entered it alike" in stuck_sentence(stuck)


def test_records_that_fell_off_the_buffer_are_no_missing_ranks(tmp_path: Path) -> None:
    waits = [entry(5), entry(6, state="started")]
    far = [entry(number) for number in range(7, 10)]
    # Rank 1 is beyond 6; of 2 only what is unfinished was dumped, of another group.
    other = [entry(1, state="started", group=("7", "tp"))]
    capture = dumped(tmp_path, {0: waits, 1: far, 2: other, 3: waits[:1]})
    stuck = next(one for one in found(capture).stuck if one.group == "0")
    assert (stuck.waiting, stuck.left, stuck.not_entered) == ((0,), (1,), (3,))
    assert stuck.unknown == (2,)


def test_a_send_without_its_receive_is_named(tmp_path: Path) -> None:
    send = entry(3, "nccl:send 0->1", "started", is_p2p=True, p2p_seq_id=2)
    stuck = the_stuck(dumped(tmp_path, {0: [entry(1), send], 1: [entry(1)]}, "[4, 9]"))
    # The ranks of a group are numbered within it: here rank 0 is no member.
    assert stuck.waiting == (0,)
    both = dumped(tmp_path, {0: [entry(1), send], 1: [entry(1)]}, "[0, 1]")
    stuck = the_stuck(both)
    assert (stuck.waiting, stuck.not_entered, stuck.sequence) == ((0,), (1,), 2)
    assert stuck.calls[0].collective == "send"
    receive = entry(3, "nccl:recv 1<-0", "started", is_p2p=True, p2p_seq_id=2)
    stuck = the_stuck(dumped(tmp_path, {0: [entry(1), send], 1: [entry(1), receive]}, "[0, 1]"))
    assert (stuck.waiting, stuck.not_entered) == ((0, 1), ())


def test_groups_of_one_name_with_other_members_are_two(tmp_path: Path) -> None:
    ranks = {
        rank: [entry(1, state="started" if rank == 0 else "completed", group=("tp", "tp"))]
        for rank in range(4)
    }
    for rank, entries in ranks.items():
        members = "[0, 1]" if rank < 2 else "[2, 3]"
        config = {"tp": {"name": "tp", "desc": "tp", "ranks": members}}
        dump = {"version": "2.9", "pg_config": config, "entries": entries}
        (tmp_path / f"rank{rank}.pickle").write_bytes(pickle.dumps(dump, protocol=2))
    stuck = the_stuck(open_trace(tmp_path))
    assert (stuck.waiting, stuck.left, stuck.unknown) == ((0,), (1,), ())


def test_several_in_one_launch_are_one(tmp_path: Path) -> None:
    several = [
        entry(1),
        entry(2, "nccl:_all_gather_base", "started"),
        entry(2, "nccl:_all_gather_base", "started", record_id=3),
        entry(2, "nccl:coalesced", "started", record_id=4, input_sizes=[], output_sizes=[]),
    ]
    stuck = the_stuck(dumped(tmp_path, {0: several, 1: several[:1]}, "[0, 1]"))
    assert stuck.calls[0].collective == "_all_gather_base + coalesced"
    assert (stuck.waiting, stuck.not_entered) == ((0,), (1,))


def test_nothing_stuck_is_said(tmp_path: Path) -> None:
    capture = dumped(tmp_path, {rank: [entry(1), entry(2)] for rank in range(4)})
    page = render_markdown(analyze(capture))
    assert "No rank waits in any." in page
    assert "8 collectives of 4 ranks in 1 group" in page


@pytest.mark.parametrize(
    "change",
    [
        {"entries": 5},
        {"entries": [{"profiling_name": 3}]},
        {"entries": [{}]},
        {"entries": [entry(1) | {"input_sizes": [[-1]]}]},
        {"entries": [entry(1) | {"input_sizes": [["a" * 1000]]}]},
        {"entries": [entry(1) | {"time_created_ns": 1 << 63}]},
        {"entries": [entry(1) | {"frames": [3]}]},
        {"version": None},
    ],
)
def test_another_form_is_one_line(change: dict[str, Any], tmp_path: Path) -> None:
    dump = {"version": "2.9", "pg_config": {}, "entries": [entry(1)], **change}
    for name, content in (
        ("trace_rank_0", pickle.dumps(dump, protocol=2)),
        ("trace_rank_0.json", msgspec.json.encode(dump)),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CaptureError, match="flight recorder") as raised:
            open_trace(tmp_path / name)
        assert "\n" not in str(raised.value)


def test_one_list_in_many_places_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_MOST_NUMBERS", 50_000)
    sizes = [[1] * 1000] * 1000
    dump = {"version": "2.9", "pg_config": {}, "entries": [entry(1) | {"input_sizes": sizes}]}
    (tmp_path / "rank_0").write_bytes(pickle.dumps(dump, protocol=2))
    with pytest.raises(CaptureError, match="another form"):
        open_trace(tmp_path / "rank_0")


def test_one_entry_in_many_places_is_refused(tmp_path: Path) -> None:
    dump = {"version": "2.9", "pg_config": {}, "entries": [entry(1)] * 1000}
    (tmp_path / "rank_0").write_bytes(pickle.dumps(dump, protocol=2))
    with pytest.raises(CaptureError, match="another form"):
        open_trace(tmp_path / "rank_0")


def test_one_long_group_under_many_names_is_refused(tmp_path: Path) -> None:
    group = {"name": "x", "ranks": str(list(range(30_000)))}
    config = {str(number): group for number in range(100)}
    dump = {"version": "2.9", "pg_config": config, "entries": [entry(1)]}
    (tmp_path / "rank_0").write_bytes(pickle.dumps(dump, protocol=2))
    with pytest.raises(CaptureError, match="another form"):
        open_trace(tmp_path / "rank_0")


def test_json_of_more_objects_than_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MOST_BYTES", 1 << 20)
    head = b'{"version": "2.9", "pg_config": {}, "entries": [], "x": ['
    (tmp_path / "rank_0.json").write_bytes(head + b"{}," * (1 << 15) + b"{}]}")
    with pytest.raises(CaptureError, match="a dump that is too large; record less"):
        open_trace(tmp_path / "rank_0.json")


def test_damaged_dumps_are_read_or_refused_and_never_anything_else(tmp_path: Path) -> None:
    rng = random.Random(5)
    refusals = []
    for name in (NAMES[0], "rank_1.json"):
        whole = (DATA / name).read_bytes()
        for _ in range(60):
            content = bytearray(whole)
            for _ in range(rng.randint(1, 4)):
                content[rng.randrange(len(content))] = rng.randrange(256)
            file = tmp_path / name
            file.write_bytes(bytes(content[: rng.randint(200, len(content))]))
            try:
                found(open_trace(file))
            except CaptureError as error:
                refusals.append(str(error))
    assert len(refusals) > 40
    assert not any("\n" in refusal for refusal in refusals)


def test_ranks_are_listed_in_spans() -> None:
    assert ranks_text([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert ranks_text(range(0, 100, 2)).endswith(", ...")


def test_of_dumps_alone_only_collectives_are_shown() -> None:
    analysis = analyze(open_traces([DATA / "nccl_trace_rank_0", DATA / "nccl_trace_rank_1"]))
    console = Console(file=StringIO(), width=100)
    render_summary(analysis, console)
    assert isinstance(console.file, StringIO)
    for text in (console.file.getvalue(), render_markdown(analysis), render_html(analysis)):
        assert "all_reduce" in text.replace("\\", "")
        for unknown in ("Step time", "MFU", "Largest loss", "By itself", "Coverage"):
            assert unknown not in text
