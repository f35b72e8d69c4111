"""The history: rows of gates, series, change points by Otava, and the page."""

import json
import os
import random
import re
import sqlite3
from pathlib import Path

import msgspec
import pytest
from recorded_gate import H100, HERE, recorded_gate

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.gate import change_points
from gpuprof.profiler.gate.change_points import as_csv, find_change_points, parse
from gpuprof.profiler.gate.history import History
from gpuprof.reports.history.page import MOST_PLOTTED, draw, render_history
from gpuprof.roofline.gate.history import ChangePoint, HistorySeries, Point, series_of, values_of
from gpuprof.roofline.machine.environment import differences, strict_key

RECORDED = Path(__file__).parents[1] / "data" / "otava" / "analyze.txt"
DAY_NS = 86_400 * 10**9


def made_up(step: float = 1.0, count: int = 40) -> HistorySeries:
    normal = random.Random(5)
    return HistorySeries(
        benchmark="train </script>",
        metric="time",
        unit="ns",
        fingerprint="f",
        device="H100",
        points=tuple(
            Point(
                measured_ns=(1767000000 + index * 86400) * 10**9,
                commit=f"{index:040x}",
                value=3e6 * (step if index >= 24 else 1) * (1 + normal.gauss(0, 0.01)),
                low=2.9e6,
                high=3.4e6,
                processes=5,
            )
            for index in range(count)
        ),
    )


def test_a_gate_gives_a_row_for_each_process_and_metric_of_its_head(tmp_path: Path) -> None:
    history = History(tmp_path / "h.sqlite")
    values = values_of(recorded_gate(2e6, 4e6), commit="abc", branch="main")

    assert history.add(values) == 2 * 3
    assert history.add(values) == 0

    kept = history.values()
    assert sorted({(v.metric, v.unit) for v in kept}) == [
        ("kernels", ""),
        ("mfu", ""),
        ("time", "ns"),
    ]
    assert [v.value for v in history.values(metric="time")] == pytest.approx([2e6, 4e6])
    assert {(v.commit, v.branch, v.device, v.benchmark) for v in kept} == {
        ("abc", "main", "H100", "train")
    }
    assert history.values(branch="other") == ()


def test_a_commit_of_the_result_goes_before_that_of_the_folder() -> None:
    values = values_of(recorded_gate(2e6, commit="own"), commit="abc", branch=None)

    assert {value.commit for value in values} == {"own"}


def test_processes_that_count_for_nothing_have_no_rows() -> None:
    result = recorded_gate(2e6, 3e6, 4e6)
    head = [p for p in result.processes if p.side == "B"]
    spoiled = (
        msgspec.structs.replace(head[0], failure="boom"),
        msgspec.structs.replace(head[1], contamination="another process"),
        head[2],
    )

    values = values_of(msgspec.structs.replace(result, processes=spoiled))

    assert {value.pair for value in values} == {2}


def test_rows_cannot_be_changed_or_deleted(tmp_path: Path) -> None:
    History(tmp_path / "h.sqlite").add(values_of(recorded_gate(2e6)))
    database = sqlite3.connect(tmp_path / "h.sqlite")

    for statement in ("DELETE FROM measurements", "UPDATE measurements SET value = 0"):
        with pytest.raises(sqlite3.IntegrityError, match="the history is only added to"):
            database.execute(statement)
    database.close()


def test_files_that_are_no_history_are_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="there is no history"):
        History(tmp_path / "none.sqlite").values()
    (tmp_path / "text").write_text("not a database, but long enough to be read as one" * 9)
    with pytest.raises(CommandError, match="is no history: file is not a database"):
        History(tmp_path / "text").values()
    other = sqlite3.connect(tmp_path / "other.sqlite")
    other.execute("CREATE TABLE t (x)")
    other.close()
    with pytest.raises(CommandError, match="is another program's database"):
        History(tmp_path / "other.sqlite").add(())
    History(tmp_path / "new.sqlite").add(())
    newer = sqlite3.connect(tmp_path / "new.sqlite")
    newer.execute("PRAGMA user_version = 9")
    newer.close()
    with pytest.raises(CommandError, match="schema version 9; upgrade gpuprof"):
        History(tmp_path / "new.sqlite").values()


def test_a_series_has_a_point_for_each_gate_and_ends_where_the_environment_differs() -> None:
    other = msgspec.structs.replace(HERE, torch="2.9")
    values = [
        *values_of(recorded_gate(5e6, 3e6, 4e6, created_ns=2 * DAY_NS)),
        *values_of(recorded_gate(2e6, 1e6, created_ns=DAY_NS)),
        *values_of(recorded_gate(9e6, created_ns=3 * DAY_NS, fingerprint=other)),
    ]

    series = [one for one in series_of(values) if one.metric == "time"]

    here = next(one for one in series if one.fingerprint == strict_key(HERE))
    assert len(series) == 2
    assert [(round(p.value), round(p.low), round(p.high)) for p in here.points] == [
        (1_500_000, 1_000_000, 2_000_000),
        (4_000_000, 3_000_000, 5_000_000),
    ]
    assert here.change == pytest.approx(4 / 1.5 - 1)


def test_environments_share_a_key_exactly_where_nothing_strict_differs() -> None:
    others = [
        msgspec.structs.replace(HERE, driver="550.90"),
        msgspec.structs.replace(HERE, environment={"RANK": "1"}),
        msgspec.structs.replace(HERE, python="3.99"),
        msgspec.structs.replace(HERE, driver="570.1"),
        msgspec.structs.replace(HERE, environment={"NCCL_ALGO": "Ring"}),
        msgspec.structs.replace(HERE, devices=(H100, H100)),
        msgspec.structs.replace(HERE, devices=(msgspec.structs.replace(H100, name="H200"),)),
        msgspec.structs.replace(
            HERE,
            devices=(msgspec.structs.replace(H100, application_graphics_clock_mhz=1410),),
        ),
    ]

    same = [strict_key(other) == strict_key(HERE) for other in others]

    assert same == [not differences(HERE, other).strict for other in others]
    assert same == [True] * 3 + [False] * 5
    # Recorded before application clocks were looked at: a history goes on.
    assert strict_key(HERE) == "be92ceb674b2"


def test_what_otava_printed_is_read() -> None:
    found = parse(RECORDED.read_text())

    assert {name: [c.index for c in changes] for name, changes in found.items()} == {
        "s0": [24],
        "s1": [],
        "s2": [24],
    }
    assert found["s0"][0].change == pytest.approx(0.0845, abs=1e-4)
    assert found["s2"][0].change == pytest.approx(-0.1007, abs=1e-4)


def test_weak_change_points_are_left_out_and_unknown_output_is_told() -> None:
    weak = re.sub('"pvalue": "0.000000"', '"pvalue": "0.000900"', RECORDED.read_text())

    assert parse(weak) == {"s0": (), "s1": (), "s2": ()}
    with pytest.raises(CommandError, match="otava printed something unknown"):
        parse('{"s0": [{"points": 3}]}')


def test_otava_is_given_every_point_and_a_time_zone() -> None:
    lines = as_csv(made_up(count=2)).splitlines()

    assert lines[0] == "time,commit,value"
    assert lines[1].startswith(f"2025-12-29T09:20:00+00:00,{0:040x},29")


def test_a_failing_otava_is_told_by_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "otava"
    command.write_text("#!/bin/sh\necho first >&2\necho 'ERROR: no such test' >&2\nexit 3\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    assert change_points.is_installed()
    with pytest.raises(CommandError, match="otava ended with 3: ERROR: no such test"):
        find_change_points([made_up()])
    # Series too short to have two levels are not asked about.
    assert find_change_points([made_up(count=3)]) == ((),)


@pytest.mark.skipif(not change_points.is_installed(), reason="Apache Otava is not installed")
def test_the_real_otava_finds_a_step_and_nothing_else() -> None:
    changed, steady, short = find_change_points([made_up(1.08), made_up(), made_up(count=3)])

    assert [change.index for change in changed] == [24]
    assert changed[0].change == pytest.approx(0.08, abs=0.02)
    assert (steady, short) == ((), ())


def test_a_plot_has_a_unit_that_reads_well_and_marks_where_a_level_begins() -> None:
    found = draw(made_up(1.08), [ChangePoint(index=24, change=0.0812, p_value=0.0)]).plot

    assert found.unit == "ms"
    assert found.points[0].high == pytest.approx(3.4)
    assert [(i, p.change) for i, p in enumerate(found.points) if p.change] == [(24, "+8.1 %")]


def test_the_page_needs_no_network_and_cannot_be_broken_by_a_name() -> None:
    text = render_history([made_up()], [()], remark="Change points need Apache Otava.")

    assert "Change points need Apache Otava." in text
    embedded = re.search(r'<script id="history-data"[^>]*>(.*?)</script>', text, re.DOTALL)
    assert embedded is not None
    (series,) = json.loads(embedded[1])["series"]
    assert series["title"] == "train </script> time"
    assert "train &lt;/script&gt; time" in text
    assert re.findall(r'(?:src|href)="(?!data:|#)([^"]*)"', text.partition("<script>")[0]) == []


def test_a_page_says_how_many_series_it_leaves_out() -> None:
    many = [made_up(count=1)] * (MOST_PLOTTED + 2)

    text = render_history(many, [()] * len(many))

    assert "2 more series are not plotted" in text
    assert text.count('<section class="series">') == MOST_PLOTTED
