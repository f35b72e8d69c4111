"""A folder of Parquet files that nsys exported is read as its SQLite export is."""

import gzip
import shutil
from pathlib import Path

import polars as pl
import pytest
from nsys_exports import as_parquet

from gpuprof.collectors import nsys
from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.opening import open_trace, run_name
from gpuprof.profiler.cluster.places import files_of_ranks

DATA = Path(__file__).parents[1] / "data" / "nsys"


def unpacked(name: str, folder: Path) -> Path:
    export = folder / f"{name}.sqlite"
    export.write_bytes(gzip.decompress((DATA / f"{name}.sqlite.gz").read_bytes()))
    return export


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of a training, as nsys calls its folder by default."""
    place = tmp_path_factory.mktemp("exports")
    return as_parquet(unpacked("h200_block", place), place / "h200_block_pqtdir")


@pytest.mark.parametrize("name", ["h200_block", "h200_cudagraph_nodes"])
def test_both_exports_of_a_recording_are_one_capture(name: str, tmp_path: Path) -> None:
    export = unpacked(name, tmp_path)
    capture = nsys.read(export)
    other = open_trace(as_parquet(export, tmp_path / f"{name}.parquetdir"))
    assert capture.kernels.height > 100
    for table, frame in capture.tables().items():
        assert other.table(table).equals(frame), table
    assert other.processes == capture.processes
    assert other.manifest == capture.manifest


def test_it_is_one_trace_and_not_a_folder_of_ranks(folder: Path, tmp_path: Path) -> None:
    assert files_of_ranks(str(folder)) == (str(folder),)
    assert run_name(folder) == "h200_block"
    # Whatever it is called, and only if its tables are of nsys.
    renamed = tmp_path / "traces"
    shutil.copytree(folder, renamed)
    assert open_trace(renamed).manifest.source == "nsys"
    other = tmp_path / "other"
    other.mkdir()
    pl.DataFrame({"a": [1]}).write_parquet(other / "part-0.parquet")
    with pytest.raises(CaptureError, match="no trace in this folder could be read"):
        open_trace(other)


def test_absent_tables_and_columns_and_newer_versions(folder: Path, tmp_path: Path) -> None:
    part = tmp_path / "part_pqtdir"
    part.mkdir()
    kernels = pl.read_parquet(folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet")
    kernels.drop("registersPerThread").with_columns(
        # Values of another type read as null.
        gridX=pl.col("gridX").cast(pl.String)
    ).write_parquet(part / "CUPTI_ACTIVITY_KIND_KERNEL_V2.parquet")
    read = nsys.read(part)
    assert read.kernels.height == kernels.height
    assert read.kernels["registers"].null_count() == kernels.height
    assert read.kernels["grid_x"].null_count() == kernels.height
    assert read.kernels["name"].unique().to_list() == ["(unnamed kernel)"]
    assert "no CUDA API calls recorded: kernels have no launch" in read.processes[0].warnings


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1"])
def test_a_damaged_table_is_named(folder: Path, tmp_path: Path, content: bytes) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    (damaged / "NVTX_EVENTS.parquet").write_bytes(content)
    with pytest.raises(CaptureError, match=r"not readable as Parquet") as caught:
        open_trace(damaged)
    assert caught.value.path == damaged / "NVTX_EVENTS.parquet"
