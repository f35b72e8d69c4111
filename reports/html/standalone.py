"""The drawings of a page as SVG files of their own.

A page's drawings need no script, and take colours and fonts from the page's style. A file of its
own has the rules that concern it, with the values of a light page in place of variables: programs
that draw SVG know neither variables nor mixed colours. Legends, which a page sets beside its
drawings, stand below them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import unescape
from typing import Final

from markupsafe import escape

# The classes of drawings and what their files are called.
NAMES: Final = {
    "picture": "roofline",
    "steps": "steps",
    "run": "run",
    "heat": "ranks",
    "memory-drawing": "memory",
    "drawing": "timeline",
    "waterfall": "change",
    "sizes": "sizes",
}
_NARROW: Final = "phone"
_SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL)
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_SECTION = re.compile(r"<section id=")
_DRAWING = re.compile(r'<svg class="([^"]+)" viewBox="([^"]+)"([^>]*)>(.*?)</svg>', re.DOTALL)
_LEGEND = re.compile(r'<p class="legend">(.*?)</p>', re.DOTALL)
_PATTERN = re.compile(r'<pattern id="([^"]+)".*?</pattern>', re.DOTALL)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_VARIABLE = re.compile(r"var\(--([\w-]+)\)")
_MIX = re.compile(r"color-mix\(in srgb, #([0-9a-f]{6}) (\d+)%, #([0-9a-f]{6})\)")
# In pixels: an entry of a legend, beside its words, and about the width of a letter.
_ROW, _MARK, _GAP, _LETTER = 22, 20, 18, 7.0
_MARGIN: Final = 10
# A line of the title above drawings, and about the width of a letter in it.
_TITLE, _TITLE_LETTER = 30, 10.8


@dataclass(frozen=True)
class StandaloneDrawing:
    """One drawing as an SVG document, and its size in pixels."""

    name: str
    width: float
    height: float
    svg: str


@dataclass(frozen=True)
class _Piece:
    """What a drawing has inside, its attributes, and its view box."""

    name: str
    attributes: str
    body: str
    width: float
    height: float


def standalone_drawings(page: str) -> tuple[StandaloneDrawing, ...]:
    """The drawings of `page`, which we rendered ourselves, in its order; wide ones alone."""
    style = "".join(_STYLE.findall(page))
    found: list[StandaloneDrawing] = []
    for piece in _pieces(page):
        number = sum(each.name.partition("-")[0] == piece.name for each in found)
        name = f"{piece.name}-{number + 1}" if number else piece.name
        found.append(_document(name, [piece], style, ""))
    return tuple(found)


def stacked_drawing(page: str, title: str) -> StandaloneDrawing | None:
    """All drawings of `page` one below the other under `title`; None where there is none."""
    pieces = list(_pieces(page))
    if not pieces:
        return None
    return _document(pieces[0].name, pieces, "".join(_STYLE.findall(page)), title)


def _pieces(page: str) -> Iterator[_Piece]:
    for section in _SECTION.split(_SCRIPT.sub("", page))[1:]:
        legend = _LEGEND.search(section)
        for classes, box, attributes, body in _DRAWING.findall(section):
            own = classes.split()
            name = next((NAMES[each] for each in own if each in NAMES), "")
            if not name or _NARROW in own:
                continue
            _, _, width, height = (float(number) for number in box.split())
            inner = f'<g class="{classes}">{_without_links(body)}</g>'
            if legend is not None:
                entries, rows = _legend(legend[1], width)
                inner += f'<g class="legend" transform="translate(0 {height + 6:g})">{entries}</g>'
                height += rows * _ROW + 6
            yield _Piece(name, attributes, inner, width, height)


def _document(name: str, pieces: list[_Piece], style: str, title: str) -> StandaloneDrawing:
    width = max(piece.width for piece in pieces) + 2 * _MARGIN
    lines = list(_wrapped(title, width - 2 * _MARGIN))
    at: float = _MARGIN + len(lines) * _TITLE
    parts = [
        f'<text class="headline" x="{_MARGIN}" y="{(index + 1) * _TITLE}">{escape(line)}</text>'
        for index, line in enumerate(lines)
    ]
    for piece in pieces:
        parts.append(f'<g transform="translate({_MARGIN} {at:g})">{piece.body}</g>')
        at += piece.height + _MARGIN
    body = "".join(parts)
    label = re.search(r'aria-label="([^"]*)"', pieces[0].attributes)
    named = f"<title>{label[1]}</title>" if label else ""
    variables = _variables(style)
    rules = _rules(style, body)
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{at:g}" '
        f'viewBox="0 0 {width:g} {at:g}">{named}<style>{rules}{_OWN}</style>'
        f'<rect width="{width:g}" height="{at:g}" fill="var(--page)"/>{body}</svg>\n'
    )
    return StandaloneDrawing(name, width, at, _resolved(text, variables))


_OWN: Final = (
    "text { font: 12.5px var(--sans); fill: var(--ink); } .headline { font: 600 16px var(--sans); }"
)


def _wrapped(text: str, width: float) -> Iterator[str]:
    """`text` in lines of about `width` pixels at the size of a title."""
    line = ""
    for word in text.split():
        if line and (len(line) + len(word) + 1) * _TITLE_LETTER > width:
            yield line
            line = word
        else:
            line = f"{line} {word}".strip()
    if line:
        yield line


def _without_links(body: str) -> str:
    """Links lead to rows of the page: here they are groups."""
    return re.sub(r"<a href=\"[^\"]*\"", "<g", body).replace("</a>", "</g>")


def _legend(markup: str, width: float) -> tuple[str, int]:
    """The entries of a page's legend as drawings, and how many rows they take."""
    entries: list[str] = []
    x, row = 0.0, 0
    for entry in markup.split("<span>")[1:]:
        words = unescape(re.sub(r"<[^>]+>", "", entry)).strip()
        path = re.search(r'<path[^>]*? d="([^"]+)"', entry)
        kind = re.search(r'class="(?:mark|swatch) ([^"]+)"', entry)
        if not words or kind is None:
            continue
        length = _MARK + len(words) * _LETTER + _GAP
        if x and x + length > width:
            x, row = 0.0, row + 1
        box = re.search(r'viewBox="(-?[\d.]+)', entry)
        scale = 6 / abs(float(box[1])) if box else 1.0
        shape = path[1] if path else "M-6-6H6V6H-6Z"
        y = row * _ROW + _ROW / 2
        inner = "now" if "move" in kind[1] else f"point {kind[1]}"
        mark = (
            f'<g class="{kind[1]}" transform="translate({x + 7:g} {y:g}) scale({scale:g})">'
            f'<path class="{inner}" stroke-width="0" d="{shape}"/></g>'
        )
        if filled := _PATTERN.search(entry):
            mark = (
                f'<defs>{filled[0]}</defs><rect x="{x + 1:g}" y="{y - 6:g}" width="12" height="12" '
                f'fill="url(#{filled[1]})"/>'
            )
        entries.append(f'{mark}<text x="{x + _MARK:g}" y="{y + 4:g}">{escape(words)}</text>')
        x += length
    return "".join(entries), row + 1 if entries else 0


def _top_rules(style: str) -> Iterator[tuple[str, str]]:
    """Selectors and declarations of the rules that stand in no @ rule."""
    text, depth, start, selector = _COMMENT.sub("", style), 0, 0, ""
    for index, letter in enumerate(text):
        if letter == "{":
            if not depth:
                selector, start = text[start:index].strip(), index + 1
            depth += 1
        elif letter == "}":
            depth -= 1
            if not depth:
                if not selector.startswith("@"):
                    yield selector, text[start:index].strip()
                start = index + 1


def _variables(style: str) -> dict[str, str]:
    """Those of a light page on a screen."""
    found: dict[str, str] = {}
    for selector, declarations in _top_rules(style):
        if selector == ":root":
            found |= re.findall(r"--([\w-]+):\s*([^;]+);", declarations + ";")
    return found


def _rules(style: str, body: str) -> str:
    """The rules of a page that can concern something in `body`."""
    classes = {name for each in re.findall(r'class="([^"]*)"', body) for name in each.split()}
    tags = {"svg", *re.findall(r"<(\w+)", body)}
    kept = []
    for selectors, declarations in _top_rules(style):
        meant = [each.strip() for each in re.split(r",(?![^(]*\))", selectors)]
        concerned = [each for each in meant if _concerns(each, classes, tags)]
        if concerned:
            # In a page the class is that of the svg element; here it is that of a group.
            own = ", ".join(each.replace("svg.", ".") for each in concerned)
            kept.append(f"{own} {{ {declarations} }}")
    return "\n".join(kept)


def _concerns(selector: str, classes: Iterable[str], tags: Iterable[str]) -> bool:
    """Whether all classes and tags of a selector occur; states and ids are the page's alone."""
    if re.search(r"[:#*\[]", selector):
        return False
    named = set(re.findall(r"\.([\w-]+)", selector))
    elements = set(re.findall(r"(?:^|[\s>+~])([a-z]\w*)", selector))
    return bool(named) and named <= set(classes) and elements <= set(tags)


def _resolved(text: str, variables: Mapping[str, str]) -> str:
    """`text` with values in place of variables, and colours in place of mixtures."""
    while _VARIABLE.search(text):
        text = _VARIABLE.sub(lambda found: variables[found[1]].replace('"', "'"), text)
    return _MIX.sub(_mixed, text)


def _mixed(found: re.Match[str]) -> str:
    share = int(found[2]) / 100
    channels = (
        round(share * int(found[1][i : i + 2], 16) + (1 - share) * int(found[3][i : i + 2], 16))
        for i in (0, 2, 4)
    )
    return "#" + "".join(f"{channel:02x}" for channel in channels)
