"""What a report says of parallelism, for each kind of it."""

from io import StringIO

import msgspec
import pytest
from parallel_ranks import experts, pipeline
from rich.console import Console

from gpuprof.reports.json_answers.rendering import render_json
from gpuprof.reports.json_answers.schemas import ANALYSIS
from gpuprof.reports.markdown import render_markdown
from gpuprof.reports.terminal import render_summary
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.parallelism_figures import (
    DataParallelism,
    Exchange,
    GradientBucket,
    GroupExchanges,
    Parallelism,
)
from gpuprof.roofline.ranks.parallelism.find import find_parallelism


def summary(analysis: Analysis) -> str:
    console = Console(file=StringIO(), width=150)
    render_summary(analysis, console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def with_parallelism(analysis: Analysis, found: Parallelism | None) -> Analysis:
    assert found is not None
    return msgspec.structs.replace(analysis, parallelism=found)


def test_buckets_and_what_could_change_them(training_analysis: Analysis) -> None:
    step_ns = training_analysis.steps.length_ns
    assert step_ns is not None
    bucket = GradientBucket(
        message_bytes=25_000_000, backward_done=0.5, duration_ns=step_ns // 5, exposed_ns=0
    )
    last = GradientBucket(
        message_bytes=5_000_000,
        backward_done=1.0,
        duration_ns=step_ns // 10,
        exposed_ns=step_ns // 10,
    )
    data = DataParallelism(group="0", ranks=8, dtype="Float", buckets=(bucket, last))
    analysis = with_parallelism(training_analysis, Parallelism(data=(data,)))
    assert "a step; 2 buckets of 30.0 MB in all over 8 ranks" in summary(analysis)
    page = render_markdown(analysis)
    assert "| 1 | 25.0 MB | 50.0% |" in page
    assert "Nothing is left to hide the last bucket, 5.00 MB" in page
    assert "of earlier buckets are exposed" not in page
    early = msgspec.structs.replace(bucket, exposed_ns=step_ns // 5)
    slow = msgspec.structs.replace(data, buckets=(early, last))
    said = render_markdown(with_parallelism(analysis, Parallelism(data=(slow,))))
    assert "gradients in bf16" in said
    half = msgspec.structs.replace(slow, dtype="BFloat16")
    said = render_markdown(with_parallelism(analysis, Parallelism(data=(half,))))
    assert "of earlier buckets are exposed" in said
    assert "gradients in bf16" not in said
    # Sums that no DistributedDataParallel makes are no buckets.
    own = msgspec.structs.replace(slow, by_ddp=False)
    analysis = with_parallelism(analysis, Parallelism(data=(own,)))
    assert "a step; 2 all-reduces of 30.0 MB in all over 8 ranks" in summary(analysis)
    said = render_markdown(analysis)
    assert "Fewer and larger all-reduces that begin during the backward pass" in said
    assert "bucket_cap_mb" not in said


@pytest.mark.parametrize("hidden", [3, 0])
def test_gathers_that_are_waited_for(training_analysis: Analysis, hidden: int) -> None:
    step_ns = training_analysis.steps.length_ns
    assert step_ns is not None
    gathers = Exchange(
        collective="all-gather",
        phase="forward",
        calls=3,
        total_bytes=None,
        duration_ns=step_ns // 2,
        exposed_ns=0 if hidden else step_ns // 2,
        hidden=hidden,
    )
    group = GroupExchanges(group="0", ranks=2, exchanges=(gathers,))
    analysis = with_parallelism(training_analysis, Parallelism(sharded=(group,)))
    assert "3 all-gather forward over 2 ranks" in summary(analysis)
    assert ("set\\_modules\\_to\\_forward\\_prefetch" in render_markdown(analysis)) != bool(hidden)


def test_messages_of_tensor_parallelism_by_layer(training_analysis: Analysis) -> None:
    reduces = Exchange(
        collective="all-reduce",
        phase="forward",
        calls=8,
        total_bytes=1 << 23,
        duration_ns=800,
        exposed_ns=800,
        hidden=0,
    )
    group = GroupExchanges(group="tp", ranks=4, exchanges=(reduces,), layers=4)
    analysis = with_parallelism(training_analysis, Parallelism(tensor=(group,)))
    assert "8 all-reduce forward, 4 calls of a layer over 4 ranks" in summary(analysis)
    assert "For each of 4 calls of a layer: 2 all-reduce forward." in render_markdown(analysis)


def test_a_bubble_beside_the_least(training_analysis: Analysis) -> None:
    even = find_parallelism(pipeline(4, 1, 8, forward_ns=[1_000] * 4), 0)
    analysis = with_parallelism(training_analysis, even)
    assert "bubble 27.3%  4 stages, 8 micro-batches: 27.3% if all were alike" in summary(analysis)
    assert "divided more evenly" not in render_markdown(analysis)
    uneven = find_parallelism(pipeline(4, 2, 8, forward_ns=[1_000, 2_000, 1_000, 1_000]), 0)
    page = render_markdown(with_parallelism(training_analysis, uneven))
    assert "2 chunks each" in page
    assert "Rank 1 works 1.60 times the mean" in page


def test_experts_that_are_uneven(training_analysis: Analysis) -> None:
    found = find_parallelism(experts([100, 300, 100, 100]), 0)
    analysis = with_parallelism(training_analysis, found)
    assert "2.00 times the mean  expert work of the busiest of 4 ranks" in summary(analysis)
    assert "The busiest rank's experts work 2.00 times the mean" in render_markdown(analysis)
    again = msgspec.json.decode(render_json(ANALYSIS, analysis), type=dict[str, object])
    assert isinstance(again["parallelism"], dict)
