"""The host: its calls, how far it is ahead of the device, and what it did besides."""

from collections.abc import Sequence
from typing import Final

from gpuprof.collectors.place_text import place_text
from gpuprof.reports import formatting
from gpuprof.reports.blocks import (
    Block,
    Column,
    Fact,
    Facts,
    Paragraph,
    Table,
    folded_table,
)
from gpuprof.reports.figures import per_step
from gpuprof.reports.sections.section import Section, titled
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.classes import COMPILATION, DATA_LOADER, GARBAGE_COLLECTION, ClassName
from gpuprof.roofline.host_figures import (
    CollectedGarbage,
    HostCall,
    HostFigures,
    LaunchQueue,
    LoaderCause,
    LoaderWait,
)

# Calls in the table, and named in the summary.
_CALLS: Final = 40
_NAMED: Final = 3
# Rows of each table of compilations.
_PLACES: Final = 20
# Recompilations: with fewer, none of which was profiled, the program has settled. One or two for
# sizes that turn out to differ are as it should be, and 8 is torch.compile's own limit.
_MANY: Final = 8
# Of a step: garbage or a loader that takes less, or less without device work, is no line of the
# summary.
_NOTABLE: Final = 0.02
_IDLE: Final = 0.1

_CALL_COLUMNS: Final = (
    Column("Call", "code"),
    Column("Kind"),
    *(Column(head, "number") for head in ("Calls", "Itself", "Total", "Itself, one call")),
)
_CAUSES: Final[dict[LoaderCause, str]] = {
    "transform": "computing",
    "reading": "reading from a storage device",
    "waiting": "waiting for something else than a storage device (network, lock, sleep, cache)",
    "core": "waiting for a core",
    "unknown": "unknown: nothing counted what they do",
}
# Why a function was given up on, where torch keeps no reason.
_UNTOLD: Final = "torch does not tell why (TORCH_LOGS=graph_breaks does)"
_OPERATORS: Final = {"operator": "operator", "runtime": "runtime call"}


def _is_told(analysis: Analysis, kind: ClassName) -> bool:
    """Whether the summary says already that the device waits for this, and who makes it."""
    if analysis.idle is None or analysis.split is None:
        return False
    least_ns = _NOTABLE * analysis.split.step_ns
    return any(one.kind == kind and one.nanoseconds >= least_ns for one in analysis.idle.causes)


# -- facts -----------------------------------------------------------------------------------------


def _launch_fact(analysis: Analysis, host: HostFigures) -> Fact | None:
    if host.launches_per_s is None:
        return None
    rate = f"{formatting.quantity(host.launches_per_s, '').strip()} launches/s"
    basis = "" if analysis.steps.timed else "under the profiler"
    notes = [basis, "" if host.queue is None else _queue(host.queue)]
    return Fact("Host", rate, "; ".join(note for note in notes if note))


def _queue(queue: LaunchQueue) -> str:
    return (
        f"the launch queue is empty {formatting.percent(queue.empty_fraction)} of the time, "
        f"median {formatting.count(queue.median)}, at most {formatting.count(queue.maximum)}"
    )


def _outside_fact(analysis: Analysis, host: HostFigures) -> Fact | None:
    if host.outside_ns is None:
        return None
    outside = formatting.duration(per_step(analysis.steps.profiled, host.outside_ns))
    return Fact("Outside of calls", outside, "in no operator and no runtime call, on any thread")


def _garbage_fact(analysis: Analysis, garbage: CollectedGarbage) -> Fact:
    value, note = formatting.UNKNOWN, "no step was timed"
    if garbage.timed_step_ns is not None:
        value = f"{formatting.duration(garbage.timed_step_ns)} a step"
        note = "mean of the timed steps"
        if analysis.steps.length_ns:
            share = formatting.percent(garbage.timed_step_ns / analysis.steps.length_ns)
            note = f"{share} of it, {note}"
    steps = analysis.steps.profiled
    counts = [formatting.count(per_step(steps, count)) for count in garbage.collections]
    if any(garbage.collections):
        note += f"; in a profiled step {', '.join(counts)} by generation, the youngest first"
    return Fact("Garbage", value, note)


def _loader_fact(analysis: Analysis, loader: LoaderWait) -> Fact:
    steps = analysis.steps.profiled
    value = formatting.duration(per_step(steps, loader.wait_ns))
    number = per_step(steps, loader.batches)
    batches = f"{formatting.count(number)} {'batch' if number == 1 else 'batches'}"
    if loader.starts:
        took = formatting.duration(per_step(steps, loader.start_ns))
        number_of = formatting.count(per_step(steps, loader.starts))
        batches += f"; begun {number_of} times, which takes {took}"
        batches += " (persistent_workers=True keeps workers)" if loader.workers else ""
    on_gpu = analysis.device is not None and analysis.device.kind != "cpu"
    value += " a step" if steps else ""
    return Fact("Loader", value, f"{batches}; {_who(loader, on_gpu=on_gpu)}")


def _who(loader: LoaderWait, *, on_gpu: bool) -> str:
    """Who loads, how, and what the time of whoever loads is."""
    if loader.workers is None:
        return "worker processes load; a trace does not tell what they do"
    who = "no workers: the program loads and transforms in line"
    if loader.workers:
        who = f"waiting for {formatting.counted(loader.workers, 'worker')}"
    memory = ""
    if on_gpu and loader.pinned is not None:
        memory = "batches in pinned memory" if loader.pinned else "batches in pageable memory"
    spent = _CAUSES[loader.cause]
    if loader.observed_ns and loader.cpu_ns is not None:
        share = formatting.percent(min(loader.cpu_ns / loader.observed_ns, 1.0))
        subject = "each computes" if loader.workers else "it computes"
        spent = f"mostly {spent}; {subject} {share} of the time"
    read = ""
    if loader.storage_bytes:
        read = f"{formatting.quantity(loader.storage_bytes, 'B')} from a storage device"
    return ", ".join(part for part in (who, spent, read, memory) if part)


def _compile_facts(analysis: Analysis, host: HostFigures) -> list[Fact]:
    """One line each for recompilations that go on, graph breaks and what is not compiled."""
    found = host.compilations
    if found is None:
        return []
    facts = []
    least = "at least " if found.at_least else ""
    if host.compiling_ns and not _is_told(analysis, COMPILATION):
        took = formatting.duration(per_step(analysis.steps.profiled, host.compiling_ns))
        facts.append(Fact("Compiling", f"{took} a step", "torch.compile, in the profiled steps"))
    if found.recompiled and (host.compiling_ns or found.recompiled >= _MANY):
        first = found.recompilations[0]
        why = f" because {first.guard}" if first.guard else ""
        note = f"{first.function} ({place_text(first.file, first.line)}) {first.times} times{why}"
        facts.append(Fact("Recompiled", f"{least}{formatting.count(found.recompiled)} times", note))
    if found.breaks:
        broken = found.breaks[0]
        number = sum(each.times for each in found.breaks)
        note = f"{place_text(broken.file, broken.line)}: {broken.reason}"
        facts.append(Fact("Graph breaks", formatting.count(number), note))
    if found.given_up:
        first_left = found.given_up[0]
        reason = first_left.reason or _UNTOLD
        note = f"{place_text(first_left.file, first_left.line)}: {reason}"
        names = ", ".join(dict.fromkeys(each.function for each in found.given_up[:_NAMED]))
        facts.append(Fact("Not compiled", names, note))
    return facts


# -- tables ----------------------------------------------------------------------------------------


def _calls(analysis: Analysis, host: HostFigures) -> Sequence[Block]:
    if not host.calls:
        return ()
    steps = analysis.steps.profiled
    lead = (
        f"{'Means for one profiled step' if steps else 'Totals'}, on all threads, lengthened by "
        "the profiler where one ran. Itself: without the operators and runtime calls inside; "
        "total: with them."
    )
    rows = tuple(_call_row(call, steps) for call in host.calls[:_CALLS])
    blocks: list[Block] = [Paragraph(lead), *folded_table(_CALL_COLUMNS, rows, "calls")]
    others_ns = host.other_self_ns + sum(call.self_ns for call in host.calls[_CALLS:])
    if others_ns:
        rest = formatting.duration(per_step(steps, others_ns))
        blocks.append(Paragraph(f"All other calls: {rest} themselves.", "note"))
    return blocks


def _call_row(call: HostCall, steps: int) -> tuple[str, ...]:
    return (
        call.name,
        _OPERATORS[call.kind],
        formatting.count(per_step(steps, call.calls)),
        formatting.duration(per_step(steps, call.self_ns)),
        formatting.duration(per_step(steps, call.total_ns)),
        formatting.duration(call.self_ns / call.calls),
    )


def _compilations(host: HostFigures) -> Sequence[Block]:
    """Of the whole run: what was compiled again, where graphs break, what is not compiled."""
    found = host.compilations
    if found is None:
        return ()
    rows = [
        (
            "compiled again",
            each.function,
            place_text(each.file, each.line),
            each.guard or "",
            each.times,
        )
        for each in found.recompilations[:_PLACES]
    ]
    rows += [
        ("graph break", "", place_text(each.file, each.line), each.reason, each.times)
        for each in found.breaks[:_PLACES]
    ]
    rows += [
        (
            "not compiled",
            each.function,
            place_text(each.file, each.line),
            each.reason or _UNTOLD,
            each.times,
        )
        for each in found.given_up[:_PLACES]
    ]
    if not rows:
        return ()
    columns = (
        *(Column("torch.compile"), Column("Function", "code"), Column("At", "code")),
        *(Column("Because"), Column("Times", "number")),
    )
    least = "at least " if found.at_least else ""
    lead = (
        f"In the whole run torch.compile compiled {least}{found.compiled} times, "
        f"{found.recompiled} of them again, for {formatting.duration(found.compiling_ns)}."
    )
    cells = tuple((*row[:-1], formatting.count(row[-1])) for row in rows)
    return (Paragraph(lead), Table(columns, cells))


# -- media -----------------------------------------------------------------------------------------


def _summary(analysis: Analysis) -> Sequence[Block]:
    """Only what costs something."""
    host = analysis.host
    if host is None:
        return ()
    facts: list[Fact | None] = []
    split, step_ns = analysis.split, analysis.steps.length_ns
    if split is not None and split.idle_ns >= _IDLE * split.step_ns:
        facts.append(_launch_fact(analysis, host))
    garbage = host.garbage
    costs = garbage is not None and (garbage.timed_step_ns or 0) >= _NOTABLE * (step_ns or 0)
    if garbage is not None and costs and not _is_told(analysis, GARBAGE_COLLECTION):
        facts.append(_garbage_fact(analysis, garbage))
    profiled_ns = analysis.steps.profiled_mean_ns
    for loader in host.loaders:
        wait_ns = per_step(analysis.steps.profiled, loader.wait_ns + loader.start_ns)
        costs = profiled_ns is not None and wait_ns >= _NOTABLE * profiled_ns
        if costs and not _is_told(analysis, DATA_LOADER):
            facts.append(_loader_fact(analysis, loader))
    known = [fact for fact in (*facts, *_compile_facts(analysis, host)) if fact is not None]
    return (Facts(tuple(known)),) if known else ()


def _body(analysis: Analysis) -> Sequence[Block]:
    host = analysis.host
    if host is None:
        return ()
    facts = [_launch_fact(analysis, host), _outside_fact(analysis, host)]
    if host.garbage is not None:
        facts.append(_garbage_fact(analysis, host.garbage))
    facts += [_loader_fact(analysis, loader) for loader in host.loaders]
    known = tuple(fact for fact in facts if fact is not None)
    blocks: list[Block] = [Facts(known)] if known else []
    return [*blocks, *_compilations(host), *_calls(analysis, host)]


SECTION = Section(key="host", title=titled("Host"), fields=("host",), summary=_summary, body=_body)
