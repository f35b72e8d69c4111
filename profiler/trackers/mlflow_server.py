"""MLflow: figures as metrics, facts as tags, summary and page as artifacts."""

import os

from gpuprof.collectors.errors import CommandError, MissingDependencyError, reason
from gpuprof.profiler.trackers.names import PREFIX, prefixed
from gpuprof.reports.tracked_run import TrackedRun

try:
    import mlflow
except ModuleNotFoundError as error:
    raise MissingDependencyError("mlflow", "send to MLflow", "mlflow") from error


def send(run: TrackedRun) -> str:
    """Send `run` as MLflow's own settings say, and return where it is to be seen.

    MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME choose server and experiment; with MLFLOW_RUN_ID
    it joins a run that is there. Raises `CommandError` where MLflow cannot.
    """
    try:
        # A run that is continued keeps its name.
        named = None if os.environ.get("MLFLOW_RUN_ID") else run.name
        with mlflow.start_run(run_name=named) as started:
            mlflow.log_metrics(prefixed(run.figures))
            mlflow.set_tags({f"{PREFIX}.{name}": value for name, value in run.facts.items()})
            mlflow.log_text(run.summary, f"{PREFIX}/summary.md")
            mlflow.log_text(run.page, f"{PREFIX}/report.html")
            return f"{mlflow.get_tracking_uri()}, run {started.info.run_id}"
    except (mlflow.exceptions.MlflowException, OSError) as error:
        raise CommandError(f"mlflow: {reason(error)}") from error
