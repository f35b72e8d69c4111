"""Live collectors together: one that fails costs its own rows and one note."""

import pickle
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
import pytest

from gpuprof.collectors import schema
from gpuprof.collectors.live.collected import tables_of
from gpuprof.collectors.live.collection import LiveCollection
from gpuprof.collectors.live.collector import Availability, CollectorRow, Note, Scope
from gpuprof.collectors.live.roster import ROSTER


class Thermometer:
    """Fills one row of the samples, and fails where told."""

    def __init__(self, scope: Scope, failing: str = "", error: BaseException | None = None) -> None:
        self.notes = [Note("no humidity")]
        self.calls: list[str] = []
        self._scope = scope
        self._failing = failing
        self._error = error
        self._do("make")

    def start(self) -> None:
        self._do("start")

    def slow_down(self) -> None:
        self._do("slow_down")

    def stop(self) -> Mapping[str, pl.DataFrame]:
        self._do("stop")
        row = {"rank": self._scope.rank, "time_ns": 1, "temperature_celsius": 21}
        return {"samples": pl.DataFrame([row])}

    def _do(self, call: str) -> None:
        self.calls.append(call)
        if call == self._failing and self._error is not None:
            raise self._error


def row(make: Callable[[Scope], Any], *, needs_gpu: bool = False) -> CollectorRow:
    return CollectorRow(
        name="Thermometer",
        subject="weather",
        needs_gpu=needs_gpu,
        fills={"samples": ("temperature_celsius",)},
        find=lambda: Availability(available=True, finding="on the wall"),
        make=make,
    )


def recorded(*rows: CollectorRow) -> tuple[dict[str, pl.DataFrame], list[str]]:
    collection = LiveCollection(Scope(rank=3), rows)
    collection.start()
    collection.slow_down()
    tables = collection.stop_into_tables()
    return tables, [note.sentence for note in collection.notes(gpu_in_use=False)]


def test_rows_of_all_come_together_in_the_shape_of_their_table() -> None:
    tables, notes = recorded(row(Thermometer), row(Thermometer))
    assert tables["samples"].schema == schema.SAMPLES
    assert tables["samples"]["temperature_celsius"].to_list() == [21, 21]
    assert tables["samples"]["rank"].to_list() == [3, 3]
    assert notes == ["no humidity"] * 2


def test_columns_of_plain_values_become_a_table_in_another_process() -> None:
    class Plain(Thermometer):
        def stop(self) -> Mapping[str, Any]:
            return {"samples": {"time_ns": [1, 2], "temperature_celsius": [20.6, None]}}

    class Odd(Thermometer):
        def stop(self) -> Mapping[str, Any]:
            return {"samples": {"time_ns": [1, 2], "humidity": [1]}}

    collection = LiveCollection(Scope(rank=3), (row(Plain), row(Odd)))
    collection.start()
    said: list[str] = []
    parts = pickle.loads(pickle.dumps(collection.stop()))
    tables = tables_of(parts, lambda part, sentence: said.append(sentence))
    assert tables["samples"].schema == schema.SAMPLES
    assert tables["samples"]["temperature_celsius"].to_list() == [21, None]
    assert said == ["Thermometer gave no rows, so weather is missing: 'humidity'"]


@pytest.mark.parametrize(
    "error",
    [OSError("no bus"), RuntimeError("no bus"), pl.exceptions.PanicException("no bus")],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize(
    ("failing", "said"),
    [("make", "did not start"), ("start", "did not start"), ("stop", "gave no rows")],
)
def test_one_that_fails_leaves_the_others(failing: str, said: str, error: BaseException) -> None:
    broken = row(lambda scope: Thermometer(scope, failing, error))
    tables, notes = recorded(broken, row(Thermometer))
    assert tables["samples"].height == 1
    assert notes[0] == f"Thermometer {said}, so weather is missing: no bus"
    assert len([note for note in notes if "missing" in note]) == 1


def test_one_that_does_not_slow_down_is_read_all_the_same() -> None:
    tables, _ = recorded(row(lambda scope: Thermometer(scope, "slow_down", ValueError("no"))))
    assert tables["samples"].height == 1


@pytest.mark.parametrize("tables", [{"weather": pl.DataFrame()}, {"samples": 7}, None])
def test_rows_of_no_table_are_a_note(tables: Any) -> None:
    class Confused(Thermometer):
        def stop(self) -> Mapping[str, pl.DataFrame]:
            return tables  # type: ignore[no-any-return]

    found, notes = recorded(row(Confused))
    assert found == {}
    assert "gave no rows" in notes[0]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
def test_what_the_user_or_a_signal_ends_is_not_held_up(error: BaseException) -> None:
    with pytest.raises(type(error)):
        recorded(row(lambda scope: Thermometer(scope, "start", error)))


def test_a_program_without_a_gpu_is_not_told_of_what_a_gpu_lacks() -> None:
    collection = LiveCollection(Scope(), (row(Thermometer, needs_gpu=True),))
    collection.start()
    assert collection.notes(gpu_in_use=False) == ()
    assert [note.sentence for note in collection.notes(gpu_in_use=True)] == ["no humidity"]
    collection.stop()


def test_every_row_fills_columns_that_there_are() -> None:
    for each in ROSTER:
        for table, columns in each.fills.items():
            assert set(columns) <= set(schema.TABLES[table])
