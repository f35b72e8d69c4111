"""A trace read by several threads equals the same trace read by one."""

import gzip
from pathlib import Path

import pytest

from gpuprof.collectors import kineto
from gpuprof.collectors.capture import Capture
from gpuprof.collectors.kineto import blocks, reader

DATA = Path(__file__).parent.parent / "data" / "kineto"


def same(one: Capture, two: Capture) -> None:
    assert one.manifest == two.manifest
    assert one.processes == two.processes
    for name, frame in one.tables().items():
        assert frame.equals(two.table(name)), name


def read_by_threads(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Capture, list[int]]:
    """The capture, and which blocks other threads took."""
    taken: list[int] = []

    class Watched(reader.BlockReaders):
        def take(self, number: int, elements: blocks.Elements, *, now: bool) -> bool:
            handed = len(self._handed)
            took = super().take(number, elements, now=now)
            if len(self._handed) > handed:
                taken.append(number)
            return took

    with monkeypatch.context() as patch:
        patch.setattr(reader, "threads_for", lambda path: 2)
        patch.setattr(reader, "BlockReaders", Watched)
        # Small recordings are one block otherwise.
        patch.setattr(blocks, "BLOCK_BYTES", 1 << 16)
        return kineto.read(path), taken


@pytest.mark.parametrize("name", ["h100_block_train_bf16.json.gz", "h100_block_infer_fp16.json.gz"])
def test_threads_read_what_one_reads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    capture, taken = read_by_threads(DATA / name, monkeypatch)
    assert taken
    same(capture, kineto.read(DATA / name))


def test_what_a_thread_cannot_read_is_read_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = gzip.decompress((DATA / "h100_block_train_bf16.json.gz").read_bytes())
    damaged = tmp_path / "damaged.json"
    # An escape that JSON does not have, in each operator of one kind.
    damaged.write_bytes(text.replace(b'"name": "aten::mm"', b'"name": "aten\\:\\:mm"'))
    capture, taken = read_by_threads(damaged, monkeypatch)
    assert taken
    same(capture, kineto.read(damaged))
    assert any("repaired" in warning for warning in capture.processes[0].warnings)


def test_findings_of_all_threads_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = gzip.decompress((DATA / "h100_block_train_bf16.json.gz").read_bytes())
    odd = tmp_path / "odd.json"
    odd.write_bytes(text.replace(b'"cat": "cuda_runtime"', b'"cat": "some_new_kind"'))
    capture, taken = read_by_threads(odd, monkeypatch)
    assert taken
    same(capture, kineto.read(odd))
