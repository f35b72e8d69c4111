"""gpuprof in a real notebook: a kernel runs its cells, and a browser shows what they leave."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import pytest
from browser import needs_browser
from chromium import Chromium
from nbclient import NotebookClient

CELLS = (
    "%load_ext gpuprof",
    """\
import gpuprof, torch
model = torch.nn.Linear(64, 64)
def train(steps):
    for _ in range(steps):
        model(torch.randn(8, 64)).sum().backward()
        gpuprof.step()""",
    """\
%%gpuprof --warmup 1 --timed 3 --profiled 2
train(12)
print("trained")""",
    "profiled = _; profiled.analysis.steps.timed, profiled.output.is_dir()",
    "profiled.analysis",
    "%%gpuprof --profiled 0\nundefined",
    "%%gpuprof --steps nonsense\ntrain(1)",
    "%%gpuprof -o /proc/nowhere/a.gpuprof\ntrain(1)",
)


class _Shown(HTMLParser):
    """The text of a cell's output, and the page in its frame."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.frame: dict[str, str | None] = {}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "iframe":
            self.frame = dict(attrs)

    def handle_data(self, data: str) -> None:
        self.text.append(data.strip())


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """What each of `CELLS` left in the executed notebook."""
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in CELLS]
    )
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "XDG_CACHE_HOME"):
            patch.setenv(name, str(folder / name))
        client = NotebookClient(
            notebook, allow_errors=True, timeout=120, resources={"metadata": {"path": folder}}
        )
        client.execute()
    assert [path.name for path in folder.glob("*.gpuprof")] == []
    return [cell.outputs for cell in notebook.cells]


def html_of(cell: list[dict[str, Any]]) -> str:
    (shown,) = (one["data"] for one in cell if one["output_type"] == "execute_result")
    html: str = shown["text/html"]
    return html


def test_a_profiled_cell_shows_its_report_and_is_its_profile(
    outputs: list[list[dict[str, Any]]],
) -> None:
    _, _, profiled, figures, analysis, *_ = outputs
    assert [one["text"] for one in profiled if one["output_type"] == "stream"] == ["trained\n"]
    assert figures[-1]["data"]["text/plain"] == "(3, True)"
    for cell in (profiled, analysis):
        shown = _Shown(html_of(cell))
        # A sanitiser takes the frame away; the figures are beside it.
        assert "Step time" in shown.text
        assert any(text.startswith("median of 3, ") for text in shown.text)
        assert shown.frame["sandbox"] == "allow-scripts allow-downloads allow-popups"
        page = shown.frame["srcdoc"]
        assert page is not None
        assert page.lower().startswith("<!doctype html>")
        assert '<base href="about:srcdoc">' in page
    assert any("cell.gpuprof" in text for text in _Shown(html_of(profiled)).text)


def test_a_cell_that_fails_fails_once_and_in_words(outputs: list[list[dict[str, Any]]]) -> None:
    *_, failed, nonsense, nowhere = outputs
    errors = [one for one in failed if one["output_type"] == "error"]
    assert [one["ename"] for one in errors][:1] == ["NameError"]
    said = ["".join(str(one) for one in cell) for cell in (failed, nonsense, nowhere)]
    assert "the cell failed; its capture is " in said[0]
    assert "invalid choice: 'nonsense'" in said[1]
    assert "/proc/nowhere is not a folder" in said[2]
    assert "Traceback" not in said[1] + said[2]


@needs_browser
def test_the_page_in_a_notebook_runs_and_its_links_stay_in_it(
    outputs: list[list[dict[str, Any]]], tmp_path: Path, browser: Chromium
) -> None:
    html = re.sub(r' sandbox="[^"]*"| loading="lazy"', "", html_of(outputs[2]))
    (tmp_path / "notebook.html").write_text(f"<!doctype html><meta charset=utf-8>{html}")
    browser.open(tmp_path / "notebook.html")
    # Without the sandbox, which keeps the test out too.
    seen = browser.evaluate("""
        const page = document.querySelector("iframe").contentWindow;
        await page.plotsDrawn;
        const link = page.document.querySelector('nav a[href="#coverage"]');
        link.click();
        await new Promise((resolve) => setTimeout(resolve, 300));
        return [page.location.href, page.scrollY > 0,
                page.document.querySelectorAll(".js-plotly-plot").length];
    """)
    assert seen[:2] == ["about:srcdoc#coverage", True]
    assert seen[2] >= 1
