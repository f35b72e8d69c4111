"""Answers about the captures of a folder, as plain values for JSON.

Each has `schema` and `answer`, or `cannot_answer` in its place, with the reason and what to do.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec

from gpuprof.collectors.errors import CaptureError, CommandError, GpuprofError
from gpuprof.profiler.captures import read_capture_and_analysis
from gpuprof.profiler.repro.recorded import as_python, choose_call
from gpuprof.profiler.serving.folder import CapturesFolder
from gpuprof.reports.comparison.markdown import render_comparison
from gpuprof.reports.formatting import counted
from gpuprof.reports.json_answers.cannot_answer import CannotAnswer
from gpuprof.reports.json_answers.of_captures import AgentAnswer
from gpuprof.reports.json_answers.rendering import answer_fields
from gpuprof.reports.json_answers.schemas import MCP
from gpuprof.reports.markdown_summary import render_markdown_summary
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.comparison.compare import compare
from gpuprof.roofline.explain.choosing import matches, near_names
from gpuprof.roofline.explain.explain import explain, points_under

# Of a list: what a model can read at a time.
MOST_ROWS: Final = 100
_TOP: Final = 10

Parameters = ParamSpec("Parameters")
Answer = dict[str, Any]


def _answering(
    method: Callable[Concatenate["CaptureAnswers", Parameters], Any],
) -> Callable[Concatenate["CaptureAnswers", Parameters], Answer]:
    @wraps(method)
    def answer(
        self: "CaptureAnswers", /, *arguments: Parameters.args, **named: Parameters.kwargs
    ) -> Answer:
        try:
            found = AgentAnswer(answer=method(self, *arguments, **named))
        except GpuprofError as error:
            found = AgentAnswer(cannot_answer=CannotAnswer.because(error))
        return answer_fields(MCP, found)

    return answer


class CaptureAnswers:
    """Answers about the captures in `folder`. Reads only, and nothing outside of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = CapturesFolder(folder)

    @_answering
    def captures(self) -> Any:
        """A row for each capture, the newest first."""
        return self._folder.listing()

    @_answering
    def summary(self, capture: str) -> Any:
        """What limits the program, what to change first and what that gains, in Markdown."""
        return render_markdown_summary(self._analysis(capture))

    @_answering
    def advice(self, capture: str) -> Any:
        """All changes whose gain is known, the largest first, with place, range and evidence."""
        found = self._analysis(capture)
        if not found.advice:
            raise CommandError("no single change is known whose gain is above the noise")
        return found.advice

    @_answering
    def figures(self, capture: str, part: str, most: int = 20) -> Any:
        """One part of the analysis, of lists the first `most` rows (100 at most)."""
        analysis = self._analysis(capture)
        if part not in analysis.__struct_fields__:
            raise CommandError(
                f"an analysis has no part {part!r}; take one of "
                f"{', '.join(analysis.__struct_fields__)}"
            )
        found = getattr(analysis, part)
        if found is None or found == ():
            raise CommandError(f"nothing of {part} was recorded or could be computed")
        if not isinstance(found, tuple):
            return found
        shown = found[: max(0, min(most, MOST_ROWS))]
        return {"rows": shown, "left_out": len(found) - len(shown)}

    @_answering
    def explain(self, capture: str, name: str, pick: int | None = None) -> Any:
        """One operator, kernel or module: figures, roof, place and what holds it back.

        Of several matches the one numbered `pick`, from 1; without it all of them are told.
        """
        held, analysis = read_capture_and_analysis(self._path(capture), None)
        found = matches(analysis, name) or points_under(held, analysis, name)
        if not found:
            near = ", ".join(near_names(analysis, name))
            raise CommandError(
                f"no operator or kernel is called {name!r}"
                + (f"; near names are {near}" if near else "")
            )
        if len(found) > 1 and pick is None:
            return {"matches": found[:MOST_ROWS], "left_out": max(0, len(found) - MOST_ROWS)}
        number = 1 if pick is None else pick
        if not 1 <= number <= len(found):
            has = counted(len(found), "match", "matches")
            raise CommandError(f"{name!r} has {has}; pick one from 1 on")
        return explain(held, analysis, found[number - 1])

    @_answering
    def repro(self, capture: str, operator: str, pick: int = 1) -> Any:
        """A Python script that runs one operator with its recorded shapes, and times it.

        It needs torch alone. Of calls with different arguments the one numbered `pick`, from 1, by
        device time.
        """
        held, analysis = read_capture_and_analysis(self._path(capture), None)
        chosen, _ = choose_call(held, analysis, operator, pick)
        call = as_python(chosen)
        # Torch is there, or the call would not be.
        from gpuprof.profiler.repro.script import render_script

        return render_script(analysis, chosen, call)

    @_answering
    def compare(self, base: str, head: str) -> Any:
        """What changed from one capture to another and why, in Markdown."""
        return render_comparison(compare(self._analysis(base), self._analysis(head)), top=_TOP)

    def _analysis(self, capture: str) -> Analysis:
        return self._folder.analysis(capture)

    def _path(self, capture: str) -> Path:
        if capture not in self._folder.names():
            raise CaptureError(self._folder.path / capture, "there is no such capture")
        return self._folder.path / capture
