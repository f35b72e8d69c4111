"""What trackers of experiments get of a capture: figures, facts, the summary and the page."""

from dataclasses import dataclass

from gpuprof.reports.html.page import render_html
from gpuprof.reports.markdown_summary import render_markdown_summary
from gpuprof.reports.sections.headline import headline
from gpuprof.reports.step_unit import step_unit
from gpuprof.reports.utilization import is_mostly_counted
from gpuprof.roofline.analysis import Analysis

_NS_PER_MS = 1e6


@dataclass(frozen=True)
class TrackedRun:
    """One run of a program, as trackers show it. What is unknown is left out."""

    name: str
    # By name without a prefix, with its unit: "step_time_ms", "split/data_loader_ms". Shares of a
    # peak are fractions of 1.
    figures: dict[str, float]
    facts: dict[str, str]
    # GitHub-flavoured Markdown.
    summary: str
    # HTML that needs no network.
    page: str


def tracked_run(analysis: Analysis) -> TrackedRun:
    """`analysis` as trackers get it."""
    return TrackedRun(
        name=analysis.title,
        figures=_figures(analysis),
        facts=_facts(analysis),
        # Trackers show HTML in Markdown as text.
        summary=render_markdown_summary(analysis, folds=False),
        page=render_html(analysis),
    )


def _figures(analysis: Analysis) -> dict[str, float]:
    steps, shares = analysis.steps, analysis.utilization
    found: dict[str, float | None] = {
        "step_time_ms": None if steps.length_ns is None else steps.length_ns / _NS_PER_MS,
        "tokens_per_s": steps.tokens_per_s,
    }
    if shares is not None and is_mostly_counted(analysis):
        found |= {
            "mfu": shares.mfu,
            "mfu_causal": shares.mfu_causal,
            "hfu": shares.hfu,
            "mbu": shares.mbu,
        }
    if analysis.split is not None:
        found |= {
            f"split/{part.kind.replace(' ', '_')}_ms": part.nanoseconds / _NS_PER_MS
            for part in analysis.split.parts
        }
    return {name: value for name, value in found.items() if value is not None}


def _facts(analysis: Analysis) -> dict[str, str]:
    steps, fingerprint = analysis.steps, analysis.fingerprint
    found = {
        "says": headline(analysis).sentence,
        "steps": steps.found_by,
        "step": "" if steps.content is None else step_unit(steps.content),
        "device": "" if analysis.device is None else analysis.device.name,
        "torch": fingerprint.torch,
        "cuda": fingerprint.cuda,
        "gpuprof": analysis.tool_version,
    }
    return {name: value for name, value in found.items() if value}
