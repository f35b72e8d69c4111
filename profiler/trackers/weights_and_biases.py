"""Weights & Biases: figures as a row of history, facts as configuration, the page as HTML."""

import os

from gpuprof.collectors.errors import CommandError, MissingDependencyError, reason
from gpuprof.profiler.trackers.names import PREFIX, prefixed
from gpuprof.reports.tracked_run import TrackedRun

try:
    import wandb
except ModuleNotFoundError as error:
    raise MissingDependencyError("wandb", "send to Weights & Biases", "wandb") from error


def send(run: TrackedRun) -> str:
    """Send `run` as wandb's own settings say, and return where it is to be seen.

    WANDB_PROJECT, WANDB_MODE and the others choose project and server; with WANDB_RUN_ID and
    WANDB_RESUME it joins a run that is there. Raises `CommandError` where wandb cannot.
    """
    try:
        # A run that is continued keeps its name.
        named = None if os.environ.get("WANDB_RUN_ID") else run.name
        with wandb.init(name=named, settings=wandb.Settings(console="off")) as started:
            started.config.update({PREFIX: run.facts}, allow_val_change=True)
            page = wandb.Html(run.page, inject=False)
            started.log({**prefixed(run.figures), f"{PREFIX}/report": page})
            return str(started.url or started.dir)
    except (wandb.errors.Error, OSError) as error:
        raise CommandError(f"wandb: {reason(error)}") from error
