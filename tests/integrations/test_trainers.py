"""Each trainer as its users run it: which steps are found, what one is, where lines point."""

import pytest
from trainer_programs import ProfiledRun

from gpuprof.reports.step_unit import step_unit
from gpuprof.roofline.analysis import Analysis

SCHEDULE = (10, 3)


def steps_of(analysis: Analysis) -> tuple[str, str]:
    """How steps were found, and what one is; the schedule must have been complete."""
    steps = analysis.steps
    assert (steps.timed, steps.profiled) == SCHEDULE
    return steps.found_by, "" if steps.content is None else step_unit(steps.content)


def files_of_lines(analysis: Analysis) -> set[str]:
    """The files in which the largest operators were called."""
    return {point.source.file for point in analysis.ops[:10] if point.source is not None}


@pytest.mark.parametrize(
    ("program", "arguments", "found_by", "unit"),
    [
        ("hf_trainer.py", ("1",), "optimizer steps (AdamW)", "optimizer step"),
        ("hf_trainer.py", ("2",), "optimizer steps (AdamW)", "optimizer step of 2 micro-batches"),
        ("accelerate_loop.py", (), "optimizer steps (AdamW)", "optimizer step of 2 micro-batches"),
        (
            "embeddings_and_dense.py",
            (),
            "optimizer steps (SparseAdam)",
            "2 optimizer steps and 1 backward pass",
        ),
    ],
)
def test_a_training_is_found_unedited(
    profiled: ProfiledRun, program: str, arguments: tuple[str, ...], found_by: str, unit: str
) -> None:
    analysis = profiled(program, *arguments)
    assert steps_of(analysis) == (found_by, unit)
    assert analysis.coverage.with_op == pytest.approx(1)
    assert program in {file.rpartition("/")[2] for file in files_of_lines(analysis)}


def test_a_training_goes_on_to_its_end(profiled: ProfiledRun) -> None:
    analysis = profiled("lightning_fit.py", "4", before=())
    found_by, unit = steps_of(analysis)
    assert (found_by, unit) == ("optimizer steps (AdamW)", "optimizer step of 4 micro-batches")
    assert (analysis.ending, analysis.exit_code) == ("finished", 0)
    # Of 24 the schedule took 17, and with the next the capture was stored.
    assert analysis.steps.later == 6


def test_fsdp2_over_two_ranks(profiled: ProfiledRun) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    analysis = profiled("fsdp2_loop.py", "2", launcher=launcher)
    found_by, unit = steps_of(analysis)
    assert (found_by, unit) == ("optimizer steps (AdamW)", "optimizer step of 2 micro-batches")
    assert analysis.world_size == 2
    assert {"all-gather", "reduce-scatter"} <= {transfer.what for transfer in analysis.transfers}


def test_a_pipeline_of_diffusers_steps_at_its_model(profiled: ProfiledRun) -> None:
    assert steps_of(profiled("diffusers_sampling.py")) == ("forward calls of UNet2DModel", "")


def test_a_server_steps_at_its_range(profiled: ProfiledRun) -> None:
    analysis = profiled("serving_loop.py", before=("--stop-after", "--step-range", "execute model"))
    assert steps_of(analysis) == ("NVTX ranges named 'execute model'", "")
    # Batches differ, and the report must not divide the work of one by the time of another.
    assert analysis.steps.unequal
