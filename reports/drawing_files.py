"""Drawings as files: SVG as it is, and PNG by resvg, which needs no browser."""

from functools import cache

from gpuprof.collectors.distribution import with_extra
from gpuprof.collectors.errors import CommandError, MissingDependencyError

# Pixels of the picture for one of the drawing: text stays sharp on dense screens.
_ZOOM = 2.0
_TEXT = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">'
    '<text y="15" style="font: 12px sans-serif">{}</text></svg>'
)


def require_png() -> None:
    """Raises `MissingDependencyError` without resvg-py, `CommandError` without any font."""
    if not _has_fonts():
        raise CommandError(
            "no font was found on this machine, and a PNG would have no words: install one "
            "(such as the package fonts-dejavu-core), or write SVG"
        )


def drawing_bytes(svg: str, suffix: str) -> bytes:
    """An SVG document as `suffix` names it: itself, or a picture twice its size in pixels.

    Raises as `require_png`.
    """
    if suffix != ".png":
        return svg.encode()
    require_png()
    return _render(svg)


@cache
def _has_fonts() -> bool:
    """Whether words come out: without fonts resvg leaves them away in silence."""
    return _render(_TEXT.format("gpuprof")) != _render(_TEXT.format(""))


def _render(svg: str) -> bytes:
    try:
        import resvg_py
    except ImportError as error:
        raise MissingDependencyError("resvg-py", "write PNG", with_extra("png")) from error
    return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=_ZOOM))
