"""What trackers hold after `gpuprof export --to`, read back through their own packages."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from trainer_programs import RunPython

from gpuprof.reports.tracked_run import TrackedRun, tracked_run
from gpuprof.roofline.analysis import ANALYSIS_FILE, Analysis


@pytest.fixture
def run(tmp_path: Path, training_analysis: Analysis) -> TrackedRun:
    """What is sent; its capture is run.gpuprof in the test's folder."""
    folder = tmp_path / "run.gpuprof"
    folder.mkdir()
    (folder / ANALYSIS_FILE).write_bytes(msgspec.json.encode(training_analysis))
    return tracked_run(training_analysis)


def named(run: TrackedRun) -> dict[str, Any]:
    return {f"gpuprof/{name}": pytest.approx(value) for name, value in run.figures.items()}


TENSORBOARD = """
import json
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator("runs/run")
events.Reload()
(text,) = events.Tensors("gpuprof/summary")
print(json.dumps({
    "figures": {tag: events.Scalars(tag)[0].value for tag in events.Tags()["scalars"]},
    "summary": text.tensor_proto.string_val[0].decode(),
}))
"""


def test_tensorboard(tmp_path: Path, python: RunPython, run: TrackedRun) -> None:
    answer = json.loads(
        python("-m", "gpuprof", "export", "run.gpuprof", "--to", "tensorboard", "--json")
    )
    assert (answer["schema"]["name"], answer["figures"]) == ("sent", run.figures)
    stored = json.loads(python("-c", TENSORBOARD))
    assert stored == {"figures": named(run), "summary": run.summary}
    assert (tmp_path / "runs" / "run" / "gpuprof-report.html").read_text() == run.page


MLFLOW = """
import json
import mlflow

client = mlflow.MlflowClient()
(stored,) = client.search_runs(["0"])
page = client.download_artifacts(stored.info.run_id, "gpuprof/report.html")
print(json.dumps({
    "name": stored.info.run_name,
    "figures": stored.data.metrics,
    "facts": {k: v for k, v in stored.data.tags.items() if k.startswith("gpuprof.")},
    "page": open(page).read(),
}))
"""


def test_mlflow(tmp_path: Path, python: RunPython, run: TrackedRun) -> None:
    store = {"MLFLOW_TRACKING_URI": f"file://{tmp_path}/mlruns", "MLFLOW_ALLOW_FILE_STORE": "true"}
    python("-m", "gpuprof", "export", "run.gpuprof", "--to", "mlflow", **store)
    assert json.loads(python("-c", MLFLOW, **store)) == {
        "name": run.name,
        "figures": named(run),
        "facts": {f"gpuprof.{name}": value for name, value in run.facts.items()},
        "page": run.page,
    }


# An offline run is a log of LevelDB (doc/log_format.md there) after a header of 7 bytes, with
# wandb's own messages in it. wandb has no public reader.
WANDB = """
import json, struct
from pathlib import Path
from wandb.proto.wandb_internal_pb2 import Record

def records(log, block=1 << 15, header=7):
    place, record = header, b""
    while place < len(log):
        left = block - place % block
        if left < header:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", log, place)
        record += log[place + header : place + header + length]
        place += header + length
        if kind in (1, 4):  # whole, or its last part
            yield Record.FromString(record)
            record = b""

(path,) = Path("wandb").glob("offline-run-*/run-*.wandb")
figures, config = {}, {}
for record in records(path.read_bytes()):
    for item in record.history.item:
        figures[item.key or ".".join(item.nested_key)] = json.loads(item.value_json)
    for update in (*record.config.update, *record.run.config.update):
        config[update.key or ".".join(update.nested_key)] = json.loads(update.value_json)
print(json.dumps({"figures": figures, "config": config}))
"""


def test_wandb(tmp_path: Path, python: RunPython, run: TrackedRun) -> None:
    python("-m", "gpuprof", "export", "run.gpuprof", "--to", "wandb", WANDB_MODE="offline")
    stored = json.loads(python("-c", WANDB))
    sent = {name: value for name, value in stored["figures"].items() if name in named(run)}
    assert sent == named(run)
    assert stored["config"]["gpuprof"] == run.facts
    place = stored["figures"]["gpuprof/report.path"]
    (page,) = tmp_path.glob(f"wandb/offline-run-*/files/{place}")
    assert page.read_text() == run.page
