"""TensorBoard: figures as scalars, the summary as text, in an event file; the page beside it."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gpuprof.collectors.errors import CommandError, MissingDependencyError
from gpuprof.collectors.files.writing import refuse_unwritable_folder, write_file
from gpuprof.profiler.trackers.names import PREFIX, prefixed
from gpuprof.reports.tracked_run import TrackedRun

try:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING
    from tensorboard.plugins.text.metadata import create_summary_metadata
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
except ModuleNotFoundError as error:
    raise MissingDependencyError("tensorboard", "write for TensorBoard", "tensorboard") from error

PAGE = f"{PREFIX}-report.html"


def into(folder: Path) -> Callable[[TrackedRun], str]:
    """What writes a run into `folder`, which may hold the event files of a training.

    Raises `CommandError` where it cannot be made, or holds a page already.
    """
    refuse_unwritable_folder(folder, option="-o")
    if (folder / PAGE).exists():
        raise CommandError(f"{folder / PAGE} exists; choose another -o")
    return partial(_write, folder)


def _write(folder: Path, run: TrackedRun) -> str:
    writer = EventFileWriter(str(folder))
    values = [Summary.Value(tag=tag, simple_value=v) for tag, v in prefixed(run.figures).items()]
    values.append(_text(f"{PREFIX}/summary", run.summary))
    writer.add_event(Event(wall_time=time.time(), step=0, summary=Summary(value=values)))
    writer.close()
    write_file(folder / PAGE, run.page.encode())
    return f"{folder}, with {PAGE}"


def _text(tag: str, markdown: str) -> Summary.Value:
    return Summary.Value(
        tag=tag,
        metadata=create_summary_metadata(display_name="", description=""),
        # Without axes: TensorBoard puts a list into a table.
        tensor=TensorProto(
            dtype=DT_STRING, string_val=[markdown.encode()], tensor_shape=TensorShapeProto()
        ),
    )
