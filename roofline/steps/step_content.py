"""What a step of a training consists of: backward passes and optimizers' steps."""

from typing import Final

import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.roofline.step_figures import StepContent
from gpuprof.roofline.work.attribution import steps_at
from gpuprof.roofline.work.op_tree import optimizer_steps

# pytorch torch/csrc/autograd/engine.cpp: the evaluation of one node of a graph.
_NODE: Final = "autograd::engine::evaluate_function: "
# The node that adds a gradient to its parameter, with the gradient's shape.
_ADDS_A_GRADIENT: Final = "torch::autograd::AccumulateGrad"


def step_content(capture: Capture) -> StepContent | None:
    """What the profiled steps of a one-rank capture hold; None where no backward pass is seen.

    A backward pass is one that adds gradients to parameters; torch.compile makes others while it
    traces.
    """
    passes = _backward_passes(capture)
    if passes.is_empty():
        return None
    steps = capture.steps.filter(pl.col("phase") == "profiled")["index"]
    calls = steps_at(capture, optimizer_steps(capture)["start_ns"])
    of_steps = passes.group_by("step").agg(passes=pl.len(), kinds=pl.col("shapes").n_unique())
    return StepContent(
        backward_passes=_least_and_most(steps, passes["step"]),
        optimizer_steps=_least_and_most(steps, calls),
        # Parameters are told by their shapes: those of a generator and a discriminator differ.
        accumulates=of_steps.select(((pl.col("passes") > 1) & (pl.col("kinds") == 1)).all()).item(),
    )


def _backward_passes(capture: Capture) -> pl.DataFrame:
    """Each backward pass of the profiled steps: its step, the shapes it adds gradients of."""
    begins = _beginnings(capture)
    passes = (
        capture.ops.select("name", "start_ns", "input_dims")
        .filter(pl.col("name") == _ADDS_A_GRADIENT)
        .drop("name")
        .sort("start_ns")
        .join_asof(begins.with_columns(begin_ns="start_ns"), on="start_ns")
        .drop_nulls("begin_ns")
        .group_by("begin_ns")
        .agg(shapes=pl.col("input_dims").fill_null("").sort().str.join(" "))
    )
    return passes.with_columns(step=steps_at(capture, passes["begin_ns"])).drop_nulls("step")


def _beginnings(capture: Capture) -> pl.DataFrame:
    """When backward passes begin.

    Nodes are numbered as they are made, and a node needs only older ones: the first node of a pass
    is the youngest of its graph, and younger than all graphs of earlier passes. So a pass begins at
    each node that is younger than all before it. What a node itself calls back (reentrant
    checkpointing) is within its pass.
    """
    return (
        capture.ops.select("name", "thread", "forward_thread", "sequence", "start_ns", "end_ns")
        .filter(pl.col("sequence").is_not_null())
        .filter(pl.col("name").str.starts_with(_NODE))
        .sort("start_ns")
        .with_columns(outer_end_ns=pl.col("end_ns").cum_max().shift(1).over("thread"))
        .filter(
            pl.col("outer_end_ns").is_null() | (pl.col("start_ns") >= pl.col("outer_end_ns")),
            # Each forward thread numbers for itself: that of the most nodes is the program's.
            pl.col("forward_thread").eq_missing(pl.col("forward_thread").mode().sort().first()),
        )
        .with_columns(youngest=pl.col("sequence").cum_max().shift(1))
        .filter(pl.col("youngest").is_null() | (pl.col("sequence") > pl.col("youngest")))
        .select("start_ns")
    )


def _least_and_most(steps: pl.Series, found: pl.Series) -> tuple[int, int]:
    """Of how many times each of `steps` stands in `found`."""
    counts = [int((found == step).sum()) for step in steps]
    return min(counts, default=0), max(counts, default=0)
