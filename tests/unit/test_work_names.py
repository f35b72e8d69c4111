"""Names as numbers, and threads as numbers."""

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.nesting import NONE, thread_codes
from gpuprof.roofline.work.names import numbered, values_at


def test_every_row_has_the_number_of_its_text() -> None:
    names = numbered(pl.Series(["mm", None, "add", "mm"]))
    assert sorted(names.texts) == ["add", "mm"]
    assert _texts(names.texts, names.numbers) == ["mm", None, "add", "mm"]
    assert names.where((names.texts == "mm").to_numpy()).tolist() == [True, False, False, True]


def test_of_some_rows_there_are_only_their_own_texts() -> None:
    names = numbered(pl.Series(["mm", None, "add", "relu"]))
    own = names.at(np.array([3, NONE, 1, 0, 3]))
    assert sorted(own.texts) == ["mm", "relu"]
    assert _texts(own.texts, own.numbers) == ["relu", None, None, "mm", "relu"]


def test_where_nothing_has_a_name_no_row_has_one() -> None:
    names = numbered(pl.Series([], dtype=pl.String))
    assert names.at(np.array([NONE, NONE])).numbers.tolist() == [NONE, NONE]
    assert names.where(np.array([], np.bool_)).tolist() == []
    assert values_at(np.array([], np.int64), np.array([NONE])).tolist() == [NONE]


def test_threads_without_a_number_are_one_of_their_own() -> None:
    first, second = thread_codes(_threads([(1, 5), (1, None)]), _threads([(1, 5), (1, None)]))
    assert first.tolist() == second.tolist()
    assert first[0] != first[1]


def test_threads_of_one_number_differ_by_their_process() -> None:
    first, second = thread_codes(_threads([(1, 5), (2, 5)]), _threads([(2, 5), (None, 5), (1, 5)]))
    assert second.tolist()[::2] == [first[1], first[0]]
    assert len({*first.tolist(), *second.tolist()}) == 3


def _threads(rows: list[tuple[int | None, int | None]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={"process": pl.Int64, "thread": pl.Int64}, orient="row")


def _texts(texts: pl.Series, numbers: np.ndarray) -> list[str | None]:
    return [None if number == NONE else texts[number] for number in numbers.tolist()]
