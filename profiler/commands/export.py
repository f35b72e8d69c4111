"""`gpuprof export`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprof.collectors.errors import CommandError

if TYPE_CHECKING:
    import polars as pl

_FORMATS = ("csv", "parquet")


class ExportCommand:
    """Write the figures of a capture as tables: CSV for spreadsheets, or Parquet.

    Each list of the analysis (kernels, ops, idle.causes, ...) is a file of its own.
    """

    name = "export"
    summary = "write the figures of a capture as CSV or Parquet tables"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Command`."""
        parser.add_argument("capture", type=Path, help="folder that gpuprof run or analyze made")
        parser.add_argument(
            "-o",
            "--output",
            type=Path,
            metavar="FOLDER",
            help="folder to make (CAPTURE-tables here)",
        )
        parser.add_argument("--format", choices=_FORMATS, default="csv", help="of the files (csv)")
        parser.add_argument(
            "--rank", type=int, metavar="R", help="the rank to write (the one that was analysed)"
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`. Raises `CommandError` before any work, and `CaptureError`."""
        from gpuprof.collectors.files.writing import refuse_unwritable, under_a_temporary_name
        from gpuprof.profiler.captures import load_analysis
        from gpuprof.reports.console.streams import write_note
        from gpuprof.reports.exported_tables import exported_tables
        from gpuprof.reports.formatting import counted

        name = arguments.capture.absolute().name.removesuffix(".gpuprof")
        output = arguments.output or Path(f"{name}-tables")
        if output.exists():
            raise CommandError(f"{output} exists; choose another -o")
        refuse_unwritable(output)
        tables = exported_tables(load_analysis(arguments.capture, arguments.rank))
        with under_a_temporary_name(output) as folder:
            folder.mkdir()
            for table, frame in tables.items():
                _write(frame, folder / f"{table}.{arguments.format}")
            folder.rename(output)
        write_note(f"gpuprof: wrote {counted(len(tables), 'table')} into {output}")
        return 0


def _write(frame: "pl.DataFrame", path: Path) -> None:
    from gpuprof.collectors.files.writing import write_parquet

    if path.suffix == ".parquet":
        write_parquet(frame, path)
        return
    import polars as pl

    # A spreadsheet computes a cell that begins so, and names come from whoever wrote the program.
    text = pl.col(pl.String)
    is_number = text.str.contains(r"^-?[0-9][0-9.]*([eE][+-]?[0-9]+)?$")
    formula = text.str.contains(r"^[=+\-@\t\r]") & ~is_number
    path.write_bytes(
        frame.with_columns(pl.when(formula).then("'" + text).otherwise(text).name.keep())
        .write_csv()
        .encode()
    )
