"""The documentation as a site, by Sphinx: `make docs` builds it, with warnings as errors.

Its pages are the Markdown files of docs/, which GitHub shows as they are. What only a site has is
added here while they are read: the menu, from the tables of docs/README.md, and below each name of
docs/api.md its signature and docstring; and beside docs/gallery.md the reports that it shows.
"""

import re
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from sphinx.application import Sphinx

from gpuprof._version import __version__

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
sys.path.insert(0, str(ROOT / "scripts"))

project = "gpuprof"
copyright = "the gpuprof authors"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "README"
exclude_patterns = ["site", "ci"]
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_title = f"gpuprof {release}"
html_copy_source = False
html_show_sphinx = False
# GitHub's anchors of headings, which links of the pages have.
myst_heading_anchors = 4
# In docstrings, `name` is code.
default_role = "code"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
# Code in a page is a shell's or Python's where it does not say what it is, or a screen's.
highlight_language = "none"

_ROW: Final = re.compile(r"^\| \[(?P<text>[^\]]+)\]\((?P<page>[^)#]+)\.md\) \| (?P<what>.*) \|$")
_LINK_OUTSIDE: Final = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<path>\.\./[^)#]+)(?:#[^)]*)?\)")
# With the line of its arguments below it, which a signature replaces.
_API_NAME: Final = re.compile(r"^(?P<head>## gpuprof\.(?P<name>\S+))\n(\n`.*\n)?", re.MULTILINE)
_PICTURE: Final = re.compile(r"^!\[.*\]\(gallery/(?P<name>\w+)\.webp\)$", re.MULTILINE)


def setup(app: Sphinx) -> None:
    """What Sphinx calls first."""
    app.connect("source-read", _prepare)
    app.connect("autodoc-process-docstring", _mark_examples)
    app.connect("build-finished", _add_index)
    app.connect("build-finished", _add_reports)


def _prepare(app: Sphinx, page: str, source: list[str]) -> None:
    text = _LINK_OUTSIDE.sub(lambda link: _outside(page, link), source[0])
    if page == "README":
        text += _menu(text)
    if page == "gallery":
        text = _PICTURE.sub(r"\g<0>\n\n<a href='gallery/\g<name>.html'>Open this page</a>", text)
    if page == "api":
        text = _API_NAME.sub(_with_reference, text)
    source[0] = text


def _outside(page: str, link: re.Match[str]) -> str:
    """A link to a file of the repository that is no page: its path, as a site has nothing else."""
    target = (DOCS / page).parent.joinpath(link["path"]).resolve()
    if target.is_relative_to(DOCS):
        return link[0]
    text, path = link["text"].strip("`"), target.relative_to(ROOT)
    return f"`{path}`" if text in (path.name, str(path)) else f"{link['text']} (`{path}`)"


def _menu(index: str) -> str:
    """The pages of the tables in `index`, by the heading above them."""
    parts, heading = [], "Pages"
    pages: dict[str, list[str]] = {}
    for line in index.splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif row := _ROW.match(line):
            # A decision's number says nothing, and the heading of a page all that it takes.
            title = f"{row['text']} {row['what']}" if row["text"].isdigit() else row["text"]
            entry = f"{title.replace('`', '')} <{row['page']}>"
            pages.setdefault(heading, []).append(entry)
    for heading, entries in pages.items():
        listed = "\n".join(entries)
        parts.append(f"\n```{{toctree}}\n:hidden:\n:caption: {heading}\n\n{listed}\n```\n")
    return "".join(parts)


def _with_reference(heading: re.Match[str]) -> str:
    name = heading["name"]
    return (
        f"{heading['head']}\n\n```{{eval-rst}}\n.. currentmodule:: gpuprof\n"
        f".. {_directive(name)}:: {name}\n```\n"
    )


def _directive(name: str) -> str:
    import gpuprof

    if name == "__version__":
        return "py:data"
    found: Any = getattr(gpuprof, name)
    if not isinstance(found, type):
        return "autofunction"
    return "autoexception" if issubclass(found, Exception) else "autoclass"


def _mark_examples(
    app: Sphinx, kind: str, name: str, found: Any, options: Any, lines: list[str]
) -> None:
    """Let an indented block of a docstring be code, as it is meant."""
    marked: list[str] = []
    for line in lines:
        begins = line.startswith("    ") and len(marked) > 1 and not marked[-1]
        if begins and marked[-2] and not marked[-2].startswith("    "):
            marked += ["::", ""]
        marked.append(line)
    lines[:] = marked


def _add_index(app: Sphinx, error: Exception | None) -> None:
    """A server shows index.html; the page is README.html, as GitHub's links have it."""
    if error is None:
        shutil.copyfile(Path(app.outdir) / "README.html", Path(app.outdir) / "index.html")


def _add_reports(app: Sphinx, error: Exception | None) -> None:
    from gallery import write_pages

    if error is None:
        for _ in write_pages(Path(app.outdir) / "gallery"):
            pass
