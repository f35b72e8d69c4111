"""How much of the time of an operator lies above what its roof allows."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from gpuprof.roofline.analysis import RooflinePoint

# Name, shapes and phase of an operator.
OperatorKey: TypeAlias = tuple[str, str, str]


def shares_above_roof(ops: Iterable[RooflinePoint]) -> Mapping[OperatorKey, float]:
    """Of the time of each operator, wherever it is called; left out where it has no roof."""
    times: dict[OperatorKey, list[tuple[int, int | None]]] = {}
    for point in ops:
        found = times.setdefault((point.name, point.detail, point.phase), [])
        found.append((point.device_ns, point.roof_ns))
    shares = {}
    for key, each in times.items():
        roofs = [roof_ns for _, roof_ns in each if roof_ns is not None]
        device_ns = sum(device_ns for device_ns, _ in each)
        if len(roofs) == len(each) and device_ns:
            shares[key] = max(0.0, 1 - sum(roofs) / device_ns)
    return shares
