"""Files with the times of functions by size."""

from pathlib import Path
from typing import Final

from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.files.writing import write_file
from gpuprof.roofline.bench.sizes import SizesReport

SUFFIXES: Final = (".html", ".svg", ".png", ".json")


def refuse_suffix(path: Path, option: str = "path") -> None:
    """Raise `CommandError` where the ending of `path` names no form; for .png see also there."""
    if path.suffix.lower() not in SUFFIXES:
        expected = ", ".join(SUFFIXES)
        raise CommandError(f"{option} {path}: its name ends in one of {expected}", exit_code=2)
    if path.suffix.lower() == ".png":
        from gpuprof.reports.drawing_files import require_png

        require_png()


def write_sizes(report: SizesReport, path: Path) -> None:
    """Write `report` in the form that the ending of `path` names. Raises as `refuse_suffix`."""
    refuse_suffix(path)
    suffix = path.suffix.lower()
    if suffix == ".json":
        from gpuprof.reports.json_answers.rendering import render_json
        from gpuprof.reports.json_answers.schemas import BENCH_SIZES

        write_file(path, render_json(BENCH_SIZES, report))
        return
    from gpuprof.reports.bench.sizes_page import drawn_sizes, render_sizes

    if suffix == ".html":
        write_file(path, render_sizes(report).encode())
        return
    from gpuprof.reports.drawing_files import drawing_bytes

    drawing = drawn_sizes(report)
    if drawing is None:
        raise CommandError(f"{path}: nothing was timed, so there is nothing to draw")
    write_file(path, drawing_bytes(drawing.svg, suffix))
