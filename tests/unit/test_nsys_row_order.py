"""Rows of an export may come in any order: the capture is the same."""

import gzip
from pathlib import Path

import pytest
from nsys_exports import shuffled

from gpuprof.collectors import nsys
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.work.attribution import attribute
from gpuprof.roofline.work.range_steps import with_evident_steps

DATA = Path(__file__).parents[1] / "data" / "nsys"


def analysed(path: Path) -> tuple[Capture, object]:
    capture = nsys.read(path)
    return capture, analyze(attribute(with_evident_steps(capture)))


@pytest.mark.parametrize("name", ["h200_block", "h200_cudagraph_nodes"])
def test_the_order_of_rows_does_not_matter(name: str, tmp_path: Path) -> None:
    export = tmp_path / "in_order" / "export.sqlite"
    export.parent.mkdir()
    export.write_bytes(gzip.decompress((DATA / f"{name}.sqlite.gz").read_bytes()))
    capture, analysis = analysed(export)
    assert capture.kernels.height > 100
    for seed in (1, 2):
        other, other_analysis = analysed(shuffled(export, tmp_path / "export.sqlite", seed))
        for table, frame in capture.tables().items():
            assert other.table(table).equals(frame), table
        assert other.processes == capture.processes
        assert other_analysis == analysis
        (tmp_path / "export.sqlite").unlink()
