"""Logs of NCCL of all ranks -> its communicators."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from gpuprof.collectors.communicators import ChosenAlgorithm, Communicator
from gpuprof.roofline.bus_bandwidth import find_collective
from gpuprof.roofline.nccl_figures import (
    LoggedAlgorithm,
    LoggedCommunicator,
    LoggedTransport,
    LoggedWarning,
    NcclFigures,
)
from gpuprof.roofline.ranks.rank_text import ranks_text
from gpuprof.roofline.ranks.summary import RankSummary

# What all ranks of a communicator should say alike.
_ALIKE: Final = (
    "version",
    "network",
    "hosts",
    "channels",
    "nvls_channels",
    "nvls",
    "rings",
    "trees",
)
_MOST_COMMUNICATORS: Final = 100
_MOST_WARNINGS: Final = 100
# NCCL counts a rank's share of these.
_OF_SHARES: Final = ("all-gather", "reduce-scatter")
_WORDS: Final = {"RING": "ring", "TREE": "tree", "SIMPLE": "Simple", "Simple": "Simple"}


def nccl_figures(summaries: Sequence[RankSummary]) -> NcclFigures | None:
    """What the logs of all ranks say; None where there are none."""
    groups: dict[tuple[str, int | None], dict[int, Communicator]] = {}
    warnings: dict[str, list[int]] = {}
    settings: dict[str, None] = {}
    for process in (each.process for each in summaries):
        for one in process.communicators:
            groups.setdefault((one.identity, one.ranks), {})[process.rank] = one
            settings |= dict.fromkeys(one.settings)
        texts = {text for one in process.communicators for text in one.warnings}
        for text in sorted(texts):
            warnings.setdefault(text, []).append(process.rank)
    if not groups:
        return None
    found = [_joined(identity, size, of_ranks) for (identity, size), of_ranks in groups.items()]
    found.sort(key=lambda one: (-(one.size or 0), one.identity))
    return NcclFigures(
        communicators=tuple(found[:_MOST_COMMUNICATORS]),
        warnings=tuple(
            LoggedWarning(text, tuple(ranks))
            for text, ranks in sorted(warnings.items(), key=lambda each: -len(each[1]))
        )[:_MOST_WARNINGS],
        settings=tuple(settings),
    )


def _joined(
    identity: str, size: int | None, of_ranks: Mapping[int, Communicator]
) -> LoggedCommunicator:
    alike: dict[str, Any] = {}
    differences = []
    for name in _ALIKE:
        values: dict[Any, list[int]] = {}
        for rank, one in sorted(of_ranks.items()):
            value = getattr(one, name)
            if value not in (None, ""):
                values.setdefault(value, []).append(rank)
        if len(values) == 1:
            alike[name] = next(iter(values))
        elif values:
            said = "; ".join(f"{value} on {_ranks(ranks)}" for value, ranks in values.items())
            differences.append(f"{name.replace('_', ' ')}: {said}")
    devices = {one.network_devices for one in of_ranks.values()}
    return LoggedCommunicator(
        identity=identity,
        size=size,
        ranks=tuple(sorted(of_ranks)),
        not_initialised=tuple(
            rank for rank, one in sorted(of_ranks.items()) if identity and not one.initialised
        ),
        network_devices=devices.pop() if len(devices) == 1 else (),
        transports=_transports(of_ranks),
        chosen=_chosen(of_ranks.values(), size),
        differences=tuple(differences),
        **alike,
    )


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'' if len(ranks) == 1 else 's'} {ranks_text(ranks)}"


def _transports(of_ranks: Mapping[int, Communicator]) -> tuple[LoggedTransport, ...]:
    found: dict[tuple[str, bool | None], tuple[int, list[int]]] = {}
    for rank, one in sorted(of_ranks.items()):
        for each in one.transports:
            count, ranks = found.get((each.name, each.gpu_direct), (0, []))
            found[each.name, each.gpu_direct] = (count + each.connections, [*ranks, rank])
    return tuple(
        LoggedTransport(name=name, gpu_direct=direct, connections=count, ranks=tuple(ranks))
        for (name, direct), (count, ranks) in sorted(found.items(), key=lambda one: -one[1][0])
    )


def _chosen(communicators: Iterable[Communicator], size: int | None) -> tuple[LoggedAlgorithm, ...]:
    """Its first rank logs each choice."""
    found = [
        _as_named(each, size) for communicator in communicators for each in communicator.chosen
    ]
    return tuple(sorted(found, key=lambda one: (one.collective, one.message_bytes)))


def _as_named(one: ChosenAlgorithm, size: int | None) -> LoggedAlgorithm:
    row = find_collective(one.collective)
    name = one.collective if row is None else row.name
    shares = size or 1 if name in _OF_SHARES else 1
    return LoggedAlgorithm(
        collective=name,
        message_bytes=one.message_bytes * shares,
        algorithm=_WORDS.get(one.algorithm.upper(), one.algorithm),
        protocol=_WORDS.get(one.protocol, one.protocol),
        channels=one.channels,
        calls=one.calls,
    )
