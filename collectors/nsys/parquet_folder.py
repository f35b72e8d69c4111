"""The folder that `nsys export --type parquetdir` writes: each table of an export in a file."""

from pathlib import Path
from typing import Final

import polars as pl

from gpuprof.collectors.errors import CaptureError, problem_of
from gpuprof.collectors.files.parquet import read_table
from gpuprof.collectors.files.repeated_text import PER_BYTE_OF_PARQUET
from gpuprof.collectors.nsys.export_tables import ColumnTypes, Export, resolved_versions, schema_of

_SUFFIX: Final = ".parquet"
# How names of an export's tables begin; other programs write folders of Parquet files, too.
KNOWN_TABLES: Final = (
    "CUPTI_ACTIVITY_KIND_",
    "NVTX_EVENTS",
    "META_DATA_",
    "StringIds",
    "TARGET_INFO_",
)


def is_parquet_folder(path: Path) -> bool:
    """Whether `path` is a folder that holds an export's tables as Parquet files."""
    try:
        return path.is_dir() and any(
            file.name.startswith(KNOWN_TABLES) and file.suffix == _SUFFIX for file in path.iterdir()
        )
    except OSError:
        return False


class ParquetFolder(Export):
    """An export whose tables are files of a folder. Its columns are those of an SQLite export."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            files = [file for file in path.iterdir() if file.suffix == _SUFFIX]
            self._file_bytes = sum(file.stat().st_size for file in files)
        except OSError as error:
            raise CaptureError(path, problem_of(error)) from error
        self._tables = resolved_versions(file.stem for file in files)

    @property
    def tables(self) -> frozenset[str]:
        """See `Export`."""
        return frozenset(self._tables)

    @property
    def most_text_bytes(self) -> int:
        """See `Export`."""
        return PER_BYTE_OF_PARQUET * self._file_bytes

    def read(self, table: str, columns: ColumnTypes) -> pl.DataFrame:
        """See `Export`."""
        schema = schema_of(columns)
        if table not in self._tables:
            return pl.DataFrame(schema=schema)
        file = self.path / f"{self._tables[table]}{_SUFFIX}"
        try:
            return read_table(
                file,
                lambda found: [
                    _typed(name, found.get(name), kind).alias(name) for name, kind in schema.items()
                ],
            )
        except (pl.exceptions.PolarsError, OSError) as error:
            raise CaptureError(
                file,
                f"not readable as Parquet: {problem_of(error)}",
                remedy="export the report again: nsys export --type parquetdir REPORT.nsys-rep",
            ) from error


def _typed(name: str, found: pl.DataType | None, wanted: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    if wanted == pl.String:
        is_text = found is not None and isinstance(found, pl.String | pl.Categorical | pl.Enum)
        return column.cast(pl.String) if is_text else pl.lit(None, wanted)
    if found == pl.UInt64:
        # SQLite has no such type: there the same bits are a signed number.
        return column.reinterpret(signed=True)
    is_whole = found is not None and (found.is_integer() or found.is_temporal())
    return column.cast(pl.Int64) if is_whole else pl.lit(None, wanted)
