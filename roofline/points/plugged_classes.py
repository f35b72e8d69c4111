"""The classes that plug-ins give to work below its roof."""

from dataclasses import replace

from gpuprof.collectors.errors import reason
from gpuprof.collectors.plugins import Plugin, problem_with
from gpuprof.roofline.classes import CLASSES, ClassRule, JudgedWork
from gpuprof.roofline.points.classify import WorkVerdict


def with_plugged_class(verdict: WorkVerdict, work: JudgedWork) -> WorkVerdict:
    """`verdict` with the class of the first rule that applies to `work`, and what says so."""
    found = [
        (plugin, said) for plugin in CLASSES.load() if (said := _said(plugin, work)) is not None
    ]
    if not found:
        return verdict
    plugin, said = found[0]
    for other, _ in found[1:]:
        problem_with(
            other.origin,
            f"{other.value.row.name} claims {work.name}, which "
            f"{plugin.origin.distribution} calls {plugin.value.row.name}",
        )
    by = plugin.origin.distribution
    return replace(verdict, kind=plugin.value.row.name, reason=f"{said} (says {by})")


def _said(plugin: Plugin[ClassRule], work: JudgedWork) -> str | None:
    name = plugin.value.row.name
    try:
        said = plugin.value.applies(work)
    except Exception as error:
        what = f"{type(error).__name__}: {reason(error)}"
        problem_with(plugin.origin, f"the rule of {name} raised {what}")
        return None
    if said is None or isinstance(said, str):
        return said or None
    problem_with(
        plugin.origin, f"the rule of {name} gave {type(said).__name__}, expected a sentence or None"
    )
    return None
