"""Which process of one job this is, by the variables of what started it."""

import hashlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class _Launcher:
    """The variables of one way to start ranks. Of several names the first that is set counts."""

    rank: str
    local_rank: str
    world_size: tuple[str, ...]
    # What all ranks of one job share and other jobs do not, and which attempt of it this is.
    job: tuple[str, ...]
    attempt: str = ""


# docs.pytorch.org/docs/stable/elastic/run.html, "Environment Variables"
_TORCHRUN: Final = _Launcher(
    "RANK",
    "LOCAL_RANK",
    ("WORLD_SIZE",),
    ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"),
    "TORCHELASTIC_RESTART_COUNT",
)
# The first whose rank and number of ranks are set counts: srun may start torchrun on each node.
_LAUNCHERS: Final = (
    _TORCHRUN,
    # slurm.schedmd.com/srun.html, "OUTPUT ENVIRONMENT VARIABLES"
    _Launcher(
        "SLURM_PROCID",
        "SLURM_LOCALID",
        ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        ("SLURM_JOB_ID", "SLURM_STEP_ID"),
        "SLURM_RESTART_COUNT",
    ),
    # docs.open-mpi.org, "Environment variables set by mpirun"
    _Launcher(
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        ("OMPI_COMM_WORLD_SIZE",),
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
)
# Programs started by srun or mpirun meet there.
_MEETING: Final = ("MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Ranks:
    """This process among those that were started together; rank 0 of 1 where it is alone."""

    rank: int
    local_rank: int
    world_size: int
    # Tells this job, and this attempt of it, from others in the same folder.
    job: str = ""
    attempt: int = 0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Ranks":
        """What torchrun, srun or Open MPI's mpirun say of this process."""
        return cls._told(environment, _LAUNCHERS)

    @classmethod
    def in_program(cls) -> "Ranks":
        """The same, and where that is nothing, what the program's own torch.distributed says.

        Trainers and torch.multiprocessing.spawn start ranks without those variables. They must
        have MASTER_PORT, by which all of one job are told from others.
        """
        told = cls.from_environment()
        distributed = sys.modules.get("torch.distributed")
        begun = distributed is not None and distributed.is_available()
        if not told.alone or distributed is None or not (begun and distributed.is_initialized()):
            return told
        if "MASTER_PORT" not in os.environ:
            return told
        rank = distributed.get_rank()
        local_rank = _count(os.environ, _TORCHRUN.local_rank)
        return cls(
            rank,
            rank if local_rank is None else local_rank,
            distributed.get_world_size(),
            _digest(os.environ.get(name) for name in _MEETING),
        )

    @classmethod
    def of_torchrun(cls) -> "Ranks":
        """What torchrun alone says, after whose variables torch.distributed can be begun."""
        return cls._told(os.environ, (_TORCHRUN,))

    @classmethod
    def _told(cls, environment: Mapping[str, str], launchers: Sequence[_Launcher]) -> "Ranks":
        for launcher in launchers:
            sizes = (_count(environment, name) for name in launcher.world_size)
            size = next((size for size in sizes if size is not None), None)
            rank = _count(environment, launcher.rank)
            if rank is None or size is None or _is_batch_script(environment, launcher):
                continue
            names = dict.fromkeys((*launcher.job, *_MEETING))
            return cls(
                rank,
                _count(environment, launcher.local_rank) or 0,
                max(size, rank + 1),
                _digest(environment.get(name) for name in names),
                _count(environment, launcher.attempt) or 0,
            )
        return cls(0, 0, 1)

    @property
    def alone(self) -> bool:
        """Whether there is no other process to join."""
        return self.world_size == 1


def _digest(facts: Iterable[str | None]) -> str:
    return hashlib.sha256(repr([*facts]).encode()).hexdigest()[:8]


def _count(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else None


def _is_batch_script(environment: Mapping[str, str], launcher: _Launcher) -> bool:
    """Whether this is sbatch's own script: it has the variables of a task, and is the only one."""
    return (
        launcher.rank == "SLURM_PROCID"
        and environment.get("ENVIRONMENT") == "BATCH"
        and "SLURM_STEP_ID" not in environment
    )
