"""The texts of a trace's blocks: each once, however many blocks have it."""

import msgspec
import polars as pl
import pytest

from gpuprof.collectors.kineto import file_texts
from gpuprof.collectors.kineto.file_texts import FileTexts


def test_blocks_share_the_numbers_of_their_texts() -> None:
    texts = FileTexts({"of torch": lambda name: name.startswith("aten::")})
    first = texts.numbered([b'"aten::mm"', b'"a\\u0062"'], [b"[[1]]", b"null"])
    second = texts.numbered([b'"other"', b'"aten::mm"'], [b"null", b'"aten::mm"', b"[[1]]"])
    assert first.texts is second.texts
    assert first.names[1] == second.names[2]
    assert first.marked["of torch"].tolist() == second.marked["of torch"].tolist() == [1]
    assert first.texts.of(pl.Series("name", second.names)).to_list() == [None, "other", "aten::mm"]
    of_second = first.texts.of(pl.Series("shapes", second.others))
    # A text of JSON keeps its quotes.
    assert of_second.to_list() == [None, None, '"aten::mm"', "[[1]]"]
    assert of_second.name == "shapes"


def test_after_many_texts_blocks_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_texts, "_MOST", 2)
    texts = FileTexts({})
    first = texts.numbered([b'"a"', b'"b"'], [])
    second = texts.numbered([b'"b"'], [])
    assert first.texts is not second.texts
    assert first.texts.of(pl.Series(first.names)).to_list() == [None, "a", "b"]
    assert second.texts.of(pl.Series(second.names)).to_list() == [None, "b"]


def test_of_a_block_with_damaged_text_nothing_is_kept() -> None:
    texts = FileTexts({})
    with pytest.raises((msgspec.MsgspecError, UnicodeDecodeError)):
        texts.numbered([b'"good"', b'"\xff"'], [])
    with pytest.raises(pl.exceptions.ComputeError):
        texts.numbered([b'"good"'], [b'"\xff"'])
    found = texts.numbered([b'"other"'], [])
    assert found.texts.of(pl.Series(found.names)).to_list() == [None, "other"]
