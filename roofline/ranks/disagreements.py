"""In what ranks disagree that should be alike: one sentence each."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import polars as pl

from gpuprof.roofline.rank_figures import DisagreementAbout, RankDisagreement
from gpuprof.roofline.ranks.collective_kinds import RECEIVE, SEND, kinds_of
from gpuprof.roofline.ranks.late_text import ranks_text
from gpuprof.roofline.ranks.stacked import stacked
from gpuprof.roofline.ranks.summary import OTHERS, RankSummary

# Differ between ranks by their nature.
_OF_ONE_RANK: Final = frozenset(
    {
        *("LOCAL_RANK", "RANK", "GROUP_RANK", "ROLE_RANK"),
        *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
        *("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "NCCL_IB_HCA"),
    }
)
# Of GradScaler's: pytorch torch/amp/grad_scaler.py
_CHECKS_GRADIENTS: Final = "aten::_amp_foreach_non_finite_check_and_unscale_"


def disagreements(
    summaries: Sequence[RankSummary], found: pl.DataFrame
) -> tuple[RankDisagreement, ...]:
    """What differs between `summaries`, with `found`, their instances.

    Shapes are compared of ranks that share collectives in which all do the same, and steps of all.
    """
    return (
        *_of_steps(summaries),
        *_of_facts(summaries),
        *_of_collectives(summaries),
        *_of_shapes(summaries, found),
        *_of_updates(summaries),
    )


def _of_steps(summaries: Sequence[RankSummary]) -> Iterator[RankDisagreement]:
    counts = stacked(summaries, "steps").group_by("rank", "phase").len()
    for phase in ("timed", "profiled"):
        of_phase = dict(counts.filter(pl.col("phase") == phase).select("rank", "len").iter_rows())
        texts = {each.rank: f"{of_phase.get(each.rank, 0)} {phase} steps" for each in summaries}
        yield from _odd_ranks("steps", texts)


def _of_facts(summaries: Sequence[RankSummary]) -> Iterator[RankDisagreement]:
    # What a trace does not say is no disagreement.
    devices = {each.rank: each.process.device_name for each in summaries}
    yield from _odd_ranks("device", {rank: name for rank, name in devices.items() if name})
    for package in sorted({name for each in summaries for name in each.process.versions}):
        yield from _odd_ranks(
            "versions",
            {
                each.rank: f"{package} {each.process.versions[package]}"
                for each in summaries
                if package in each.process.versions
            },
        )
    # Only programs that gpuprof itself watched have one, and all of those have.
    known = [each for each in summaries if each.process.environment]
    for name in sorted({name for each in known for name in each.process.environment}):
        if name in _OF_ONE_RANK:
            continue
        values = {each.rank: each.process.environment.get(name) for each in known}
        yield from _odd_ranks(
            "environment",
            {
                rank: f"no {name}" if value is None else f"{name}={value}"
                for rank, value in values.items()
            },
        )


def _of_collectives(summaries: Sequence[RankSummary]) -> Iterator[RankDisagreement]:
    """Members of one group that did not run as many of its collectives in a step.

    Sends and receives are each rank's own: stages in the middle of a pipeline have more.
    """
    counts: defaultdict[tuple[str, str | None, int], dict[int, dict[int, int]]] = defaultdict(dict)
    keys = ("group", "group_ranks", "group_size", "rank", "step")
    ran = stacked(summaries, "collectives").drop_nulls(["group", "group_size"])
    ran = ran.filter(~kinds_of(ran["collective"]).is_in([SEND, RECEIVE]).fill_null(False))
    for group, ranks, size, rank, step, count in ran.group_by(keys).len().iter_rows():
        counts[group, ranks, size].setdefault(rank, {})[step] = count
    for (group, _, size), of_ranks in sorted(counts.items(), key=str):
        # Of a name that several groups share, nothing tells which ranks are of which.
        if len(of_ranks) != size:
            continue
        for step in sorted(set.intersection(*map(set, of_ranks.values()))):
            odd = tuple(
                _odd_ranks(
                    "collectives",
                    {
                        rank: f"{of_steps[step]} collectives of group {group} in step {step}"
                        for rank, of_steps in sorted(of_ranks.items())
                    },
                )
            )
            # Where one step disagrees others mostly do, in the same way.
            if odd:
                yield from odd
                break


def _of_shapes(summaries: Sequence[RankSummary], found: pl.DataFrame) -> Iterator[RankDisagreement]:
    """Operators that ranks of a group call equally often, with other shapes."""
    of_all = _shapes(summaries)
    groups = (
        found.filter("alike")
        .group_by("instance")
        .agg(ranks=pl.col("rank").sort())["ranks"]
        .unique()
    )
    said: set[tuple[int, ...]] = set()
    for ranks in sorted(map(tuple, groups.to_list()), key=lambda ranks: (-len(ranks), ranks)):
        shapes = {rank: of_all[rank] for rank in ranks}
        names = set.intersection(*(set(each) for each in shapes.values()))
        differing = {
            name: {rank: own[name] for rank, own in shapes.items()}
            for name in sorted(names)
            if len({sum(own[name].values()) for own in shapes.values()}) == 1
            and len({frozenset(own[name].items()) for own in shapes.values()}) > 1
        }
        if not differing or any(set(ranks) <= set(other) for other in said):
            continue
        said.add(ranks)
        yield _shape_sentence(differing)


def _shapes(summaries: Sequence[RankSummary]) -> dict[int, dict[str, Counter[str]]]:
    """How often each rank calls each operator with which shapes, in all profiled steps.

    Of those operators only that are not called alike on all ranks.
    """
    counted: dict[int, dict[str, Counter[str]]] = {each.rank: {} for each in summaries}
    rows = stacked(summaries, "work").filter(
        pl.col("name") != OTHERS, pl.col("input_dims").is_not_null()
    )
    calls = rows.group_by("rank", "name", "input_dims").agg(pl.col("calls").sum())
    of_rank = calls.group_by("rank", "name").agg(
        shapes=pl.format("{} {}", "calls", "input_dims").sort().str.join("\n")
    )
    differing = (
        of_rank.group_by("name").agg(pl.col("shapes").n_unique()).filter(pl.col("shapes") > 1)
    )
    for rank, name, dims, count in calls.join(differing, on="name", how="semi").iter_rows():
        counted[rank].setdefault(name, Counter())[dims] += count
    return counted


def _shape_sentence(differing: Mapping[str, Mapping[int, Counter[str]]]) -> RankDisagreement:
    name, of_ranks = next(iter(differing.items()))
    usual_ranks, *odd_ranks = _by_frequency(
        {rank: str(sorted(counts.items())) for rank, counts in of_ranks.items()}
    )
    odd = tuple(sorted(rank for some in odd_ranks for rank in some))
    one, other = odd[0], usual_ranks[0]
    own = sorted(of_ranks[one] - of_ranks[other])[0]
    usual = sorted(of_ranks[other] - of_ranks[one])[0]
    more = f", and {len(differing) - 1} other operators differ too" if len(differing) > 1 else ""
    return RankDisagreement(
        about="shapes",
        sentence=(
            f"{ranks_text(odd)} {'calls' if len(odd) == 1 else 'call'} {name} with shapes {own} "
            f"where rank {other} has {usual}{more}"
        ),
        ranks=odd,
    )


def _of_updates(summaries: Sequence[RankSummary]) -> Iterator[RankDisagreement]:
    """Steps whose update GradScaler skipped on some ranks only: the others found no overflow."""
    work = stacked(summaries, "work")
    checks = pl.col("name") == _CHECKS_GRADIENTS
    if not work.select(checks.any()).item():
        return
    updates = (pl.col("phase") == "optimizer") & ~checks
    updated: defaultdict[int, dict[int, bool]] = defaultdict(dict)
    for rank, step, any_update in (
        work.group_by("rank", "step").agg(updates.any().alias("any_update")).iter_rows()
    ):
        updated[step][rank] = any_update
    for step, of_ranks in sorted(updated.items()):
        skipped = tuple(rank for rank, updates in sorted(of_ranks.items()) if not updates)
        if not skipped or len(skipped) == len(of_ranks):
            continue
        yield RankDisagreement(
            about="loss scale",
            sentence=(
                f"in step {step} {ranks_text(skipped)} skipped the optimizer's update, which the "
                "others made: loss scaling found gradients there that are not finite"
            ),
            ranks=skipped,
        )


def _odd_ranks(about: DisagreementAbout, texts: Mapping[int, str]) -> Iterator[RankDisagreement]:
    """A sentence where `texts`, what each rank has, are not all equal: who differs from most."""
    usual, *odd = _by_frequency(texts)
    if not odd:
        return
    parts = [
        f"{ranks_text(ranks)} {'has' if len(ranks) == 1 else 'have'} {texts[ranks[0]]}"
        for ranks in odd
    ]
    rest = "the other ranks" if len(usual) > 1 else f"rank {usual[0]}"
    yield RankDisagreement(
        about=about,
        sentence=f"{', '.join(parts)}; {rest} {texts[usual[0]]}",
        ranks=tuple(sorted(rank for ranks in odd for rank in ranks)),
    )


def _by_frequency(texts: Mapping[int, str]) -> list[tuple[int, ...]]:
    """The ranks of each text, those of the most frequent one first; of equals the lowest rank's."""
    ranks: defaultdict[str, list[int]] = defaultdict(list)
    for rank, text in sorted(texts.items()):
        ranks[text].append(rank)
    return sorted(map(tuple, ranks.values()), key=lambda some: (-len(some), some[0])) or [()]
