"""What is kept of one rank: small whatever the size of its trace, and able to travel.

All that is said across ranks is computed from these alone (`gpuprof.roofline.ranks.join`), whether
they were made in this process or by workers on other hosts.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from io import BytesIO
from itertools import chain
from typing import Final

import msgspec
import polars as pl

from gpuprof.collectors import schema
from gpuprof.collectors.communicators import Communicator, ProcessGroup
from gpuprof.collectors.errors import problem_of
from gpuprof.collectors.files.parquet import read_table
from gpuprof.collectors.files.stored_json import decode_stored
from gpuprof.collectors.manifest import RankSource
from gpuprof.collectors.rank_numbers import Rank, WorldSize
from gpuprof.collectors.stored_tables import REQUIRED, row_problems

# One row for each step of the rank. The last columns are of profiled steps alone.
STEPS: Final = pl.Schema(
    {
        "index": pl.Int32,
        "phase": pl.String,
        # The host's marks, on the rank's own clock.
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        # As in the table of steps.
        "device_ns": pl.Int64,
        "host_ns": pl.Int64,
        "run_delay_ns": pl.Int64,
        "loader_ns": pl.Int64,
        # The step on the device: from the end of the previous step's work to the end of its own. On
        # a CPU its marks.
        "begun_ns": pl.Int64,
        "done_ns": pl.Int64,
        # The device computes or copies; does nothing but communicate; has no work. They add up to
        # the length.
        "working_ns": pl.Int64,
        "exposed_communication_ns": pl.Int64,
        "idle_ns": pl.Int64,
    }
)

# One row for each collective of the profiled steps, in order of its start.
COLLECTIVES: Final = pl.Schema(
    {
        "step": pl.Int32,
        "group": pl.String,
        # The members as JSON text, where the source names them: groups of one name may differ.
        "group_ranks": pl.String,
        "group_size": pl.Int32,
        "sequence": pl.Int64,
        "collective": pl.String,
        "message_bytes": pl.Int64,
        "dtype": pl.String,
        "stream": pl.Int64,
        "name": pl.String,
        # The row among the kernels of the rank.
        "kernel_row": pl.Int64,
        # When the host launched it, or called it on a CPU; null where that was not recorded.
        "launch_ns": pl.Int64,
        # From the rank's arrival to the end of the collective there.
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        # Of that, in which nothing computes or copies.
        "exposed_ns": pl.Int64,
    }
)

# Device work beside collectives: one row for each operator with its shapes and place, by step and
# `segment`: how many collectives of its step had begun before it ended.
WORK: Final = pl.Schema(
    {
        "step": pl.Int32,
        "segment": pl.Int32,
        "name": pl.String,
        # Null where shapes were not recorded.
        "input_dims": pl.String,
        "input_types": pl.String,
        "phase": pl.String,
        "module": pl.String,
        "file": pl.String,
        "line": pl.Int32,
        "calls": pl.Int64,
        "device_ns": pl.Int64,
    }
)

# Time without device work, by what the host did meanwhile; step and segment as of WORK.
IDLE: Final = pl.Schema(
    {
        "step": pl.Int32,
        "segment": pl.Int32,
        # The bottleneck class, and the culprit as `gpuprof.roofline.idle.culprits` names it.
        "kind": pl.String,
        "culprit": pl.String,
        # "train.py:42"; "" where it is unknown.
        "place": pl.String,
        # Whether it is as long without the profiler.
        "keeps": pl.Boolean,
        "nanoseconds": pl.Int64,
    }
)

# The rank's device in each profiled step, by NVML's samples in it or near it. Null: no answer.
STATES: Final = pl.Schema(
    {
        "step": pl.Int32,
        "sm_clock_mhz": pl.Int32,
        "power_milliwatts": pl.Int64,
        # All NVML's clocks-event-reasons bits that were seen.
        "throttle_reasons": pl.Int64,
    }
)

# What a flight recorder or a log of NCCL kept of the rank: as many rows as that kept.
RECORDS: Final = pl.Schema(
    {name: dtype for name, dtype in schema.TABLES["collective_records"].items() if name != "rank"}
)

FRAMES: Final = {
    "steps": STEPS,
    "collectives": COLLECTIVES,
    "work": WORK,
    "idle": IDLE,
    "states": STATES,
    "records": RECORDS,
}
# Columns without nulls.
_REQUIRED: Final = {
    "steps": ("index", "phase", "start_ns", "end_ns"),
    "collectives": ("step", "name", "kernel_row", "start_ns", "end_ns", "exposed_ns"),
    "work": ("step", "segment", "name", "calls", "device_ns"),
    "idle": ("step", "segment", "kind", "culprit", "place", "keeps", "nanoseconds"),
    "states": ("step",),
    "records": REQUIRED["collective_records"],
}
# A step has all of these or none.
_PARTS: Final = ("begun_ns", "done_ns", "working_ns", "exposed_communication_ns", "idle_ns")
# The least value of each.
_COUNTS: Final = {"calls": 1, "nanoseconds": 0}
_MOST: Final = 1 << 60
# Those that a summary has had from the first on.
_FIRST_FRAMES: Final = 5
# What a row stands for in which those beyond the limit are added up.
OTHERS: Final = "others"
_LENGTH: Final = struct.Struct("<Q")


class RankProcess(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank says of itself."""

    rank: Rank
    world_size: WorldSize = 1
    # None where the source does not name it.
    host: str | None = None
    # The number of its device on its host, and that device's name.
    local_device: int | None = None
    device_name: str | None = None
    # The device is the CPU: its work is leaf operators.
    on_cpu: bool = False
    # By package, those that are known.
    versions: dict[str, str] = {}
    environment: dict[str, str] = {}
    # Of the capture or file it is from.
    title: str = ""
    # What that file is, and what it or its name says of the rank: with these the rank is found
    # among those of other files that are read by themselves.
    source: str = ""
    rank_from: RankSource = "content"
    # No rank is named and no device has work.
    is_bystander: bool = False
    # DistributedDataParallel ran: sums of gradients are its buckets.
    uses_ddp: bool = False
    # Of torch.distributed where there are records, and of NCCL where there is a log.
    process_groups: tuple[ProcessGroup, ...] = ()
    communicators: tuple[Communicator, ...] = ()
    warnings: tuple[str, ...] = ()
    # Collectives of the last profiled steps that had no room.
    collectives_left_out: int = 0


def _no_rows(name: str) -> pl.DataFrame:
    return pl.DataFrame(schema=FRAMES[name])


@dataclass(frozen=True)
class RankSummary:
    """One rank. Times are int64 ns on its own clock."""

    process: RankProcess
    steps: pl.DataFrame = field(default_factory=partial(_no_rows, "steps"))
    collectives: pl.DataFrame = field(default_factory=partial(_no_rows, "collectives"))
    work: pl.DataFrame = field(default_factory=partial(_no_rows, "work"))
    idle: pl.DataFrame = field(default_factory=partial(_no_rows, "idle"))
    states: pl.DataFrame = field(default_factory=partial(_no_rows, "states"))
    records: pl.DataFrame = field(default_factory=partial(_no_rows, "records"))

    def __post_init__(self) -> None:
        for name, expected in FRAMES.items():
            actual = self.frame(name).schema
            if actual != expected:
                differing = sorted(set(actual.items()) ^ set(expected.items()), key=str)
                raise ValueError(f"frame {name} does not have its schema: {differing}")

    @property
    def rank(self) -> int:
        """Its number in the job."""
        return self.process.rank

    def frame(self, name: str) -> pl.DataFrame:
        """The frame called `name`, one of `FRAMES`."""
        frame = getattr(self, name)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_bytes(self) -> bytes:
        """The summary as bytes: the process as JSON, then each frame as Parquet, with lengths.

        Not as Arrow IPC: a damaged buffer there may claim any size, and polars aborts the process
        where it cannot be had.
        """
        parts = [msgspec.json.encode(self.process)]
        for name in (each.name for each in fields(self) if each.name in FRAMES):
            buffer = BytesIO()
            self.frame(name).write_parquet(buffer, compression="zstd", statistics=False)
            parts.append(buffer.getvalue())
        return joined_parts(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> "RankSummary":
        """What `to_bytes` gave. Raises `ValueError` for anything else."""
        parts = parts_of(data)
        if not _FIRST_FRAMES < len(parts) <= 1 + len(FRAMES):
            raise ValueError(f"no summary of a rank: {len(parts)} parts, not {1 + len(FRAMES)}")
        try:
            process = decode_stored(parts[0], RankProcess)
            frames = {
                name: _read_frame(name, part) for name, part in zip(FRAMES, parts[1:], strict=False)
            }
        except (msgspec.MsgspecError, pl.exceptions.PolarsError, OSError) as error:
            raise ValueError(f"no summary of a rank: {problem_of(error)}") from error
        return cls(process, **frames)


def parts_of(data: bytes) -> list[bytes]:
    """The parts that `joined_parts` put together. Raises `ValueError` where there are none."""
    parts, at = [], 0
    while at < len(data):
        if at + _LENGTH.size > len(data):
            raise ValueError(f"no summary of a rank: cut off after {len(data)} bytes")
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if at + length > len(data):
            raise ValueError(f"no summary of a rank: cut off after {len(data)} bytes")
        parts.append(data[at : at + length])
        at += length
    return parts


def joined_parts(parts: Iterable[bytes]) -> bytes:
    """`parts` one after the other, each behind its length."""
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def _read_frame(name: str, part: bytes) -> pl.DataFrame:
    """The frame called `name`. Raises `ValueError` where it is none, and polars' errors."""

    def columns(found: pl.Schema) -> list[pl.Expr]:
        if found != FRAMES[name]:
            raise ValueError(f"no summary of a rank: {name} with other columns")
        return [pl.all()]

    frame = read_table(part, columns)
    problems = chain(row_problems(frame, required=_REQUIRED[name]), _odd_rows(name, frame))
    problem = next(problems, "")
    if problem:
        raise ValueError(f"no summary of a rank: {name}, {problem}")
    return frame


def _odd_rows(name: str, frame: pl.DataFrame) -> Iterator[str]:
    """What `row_problems` does not know of these frames."""
    for column, least in _COUNTS.items():
        if column in frame.columns and not frame[column].is_between(least, _MOST).all():
            yield f"a row has {column} out of range"
    if name == "steps":
        known = frame.select(pl.sum_horizontal(pl.col(_PARTS).is_not_null())).to_series()
        if not known.is_in([0, len(_PARTS)]).all():
            yield "a row tells only some of how its step divides"
