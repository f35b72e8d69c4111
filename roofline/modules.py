"""Device work by the modules of the program: what each takes, and what is called in it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from gpuprof.roofline.analysis import RooflinePoint
from gpuprof.roofline.classes import ClassName
from gpuprof.roofline.module_figures import (
    FusedOperator,
    ModuleOperator,
    ModuleTree,
    ModuleWork,
    PhaseTime,
    SourceLine,
)
from gpuprof.roofline.phase import Phase

# An operator that the program calls: its name, line, and what it was made of.
_Call = tuple[str, SourceLine | None, tuple[FusedOperator, ...]]
# What no module called.
OUTSIDE: Final = ""


def module_tree(ops: Sequence[RooflinePoint], instances: Mapping[str, int]) -> ModuleTree | None:
    """The tree of the modules of `ops`, the operator points of all device work.

    `instances` are how many modules each path stands for. None where nothing is known of modules
    and lines.
    """
    all_ns = sum(point.device_ns for point in ops)
    module_ns = sum(point.device_ns for point in ops if point.module)
    line_ns = sum(point.device_ns for point in ops if point.source is not None)
    if not all_ns or not (module_ns or line_ns):
        return None
    own: defaultdict[str, list[RooflinePoint]] = defaultdict(list)
    for point in ops:
        own[point.module].append(point)
    rows = _rows(own, instances, all_ns)
    return ModuleTree(with_module=module_ns / all_ns, with_line=line_ns / all_ns, rows=tuple(rows))


def _rows(
    own: Mapping[str, Sequence[RooflinePoint]], instances: Mapping[str, int], all_ns: int
) -> list[ModuleWork]:
    inside: defaultdict[str, list[RooflinePoint]] = defaultdict(list)
    children: defaultdict[str, set[str]] = defaultdict(set)
    tops = set()
    for path, points in own.items():
        parts = path.split(".")
        prefixes = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
        tops.add(prefixes[0])
        for outer, inner in pairwise(prefixes):
            children[outer].add(inner)
        for prefix in prefixes:
            inside[prefix] += points
    rows: list[ModuleWork] = []

    def add(paths: Iterable[str], depth: int) -> None:
        for path in sorted(paths, key=lambda path: (-_device_ns(inside[path]), path)):
            alone = path not in own and len(children[path]) == 1
            if not alone:
                number = instances.get(path, 1)
                rows.append(_work(path, depth, number, own.get(path, ()), inside[path], all_ns))
            add(children[path], depth if alone else depth + 1)

    add(tops, 0)
    return rows


def _work(
    path: str,
    depth: int,
    instances: int,
    own: Sequence[RooflinePoint],
    inside: Sequence[RooflinePoint],
    all_ns: int,
) -> ModuleWork:
    device_ns = _device_ns(inside)
    roofed = [point for point in inside if point.roof_ns is not None]
    roofed_ns = _device_ns(roofed)
    counted = [p for p in inside if p.total_flops is not None and p.total_bytes is not None]
    return ModuleWork(
        path=path,
        depth=depth,
        instances=instances,
        device_ns=device_ns,
        own_ns=_device_ns(own),
        device_fraction=device_ns / all_ns,
        phases=_phases(inside),
        flops=sum(point.total_flops or 0 for point in inside),
        bytes=sum(point.total_bytes or 0 for point in inside),
        counted_fraction=_device_ns(counted) / device_ns if device_ns else 0.0,
        roof_fraction=(
            sum(point.roof_ns or 0 for point in roofed) / roofed_ns if roofed_ns else None
        ),
        kind=_kind(inside),
        operators=_operators(own, all_ns),
    )


def _operators(own: Sequence[RooflinePoint], all_ns: int) -> tuple[ModuleOperator, ...]:
    by_call: defaultdict[_Call, list[RooflinePoint]] = defaultdict(list)
    for point in own:
        by_call[point.caller or point.name, point.source, point.fused].append(point)
    found = []
    for (name, source, fused), points in by_call.items():
        names = Counter[str]()
        for point in points:
            names[point.name] += point.device_ns
        inner = tuple(each for each, _ in names.most_common())
        found.append(
            ModuleOperator(
                name=name,
                inner=() if inner == (name,) else inner,
                source=source,
                fused=fused,
                device_ns=_device_ns(points),
                device_fraction=_device_ns(points) / all_ns,
                phases=_phases(points),
                kind=_kind(points),
            )
        )
    return tuple(sorted(found, key=lambda each: (-each.device_ns, each.name)))


def _phases(points: Iterable[RooflinePoint]) -> tuple[PhaseTime, ...]:
    times: dict[Phase, int] = {}
    for point in points:
        times[point.phase] = times.get(point.phase, 0) + point.device_ns
    return tuple(
        PhaseTime(phase, ns) for phase, ns in sorted(times.items(), key=lambda item: -item[1])
    )


def _kind(points: Iterable[RooflinePoint]) -> ClassName:
    times = Counter[str]()
    for point in points:
        times[point.bottleneck.kind] += point.device_ns
    ((kind, _),) = times.most_common(1)
    return kind


def _device_ns(points: Iterable[RooflinePoint]) -> int:
    return sum(point.device_ns for point in points)
