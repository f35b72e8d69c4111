"""Which process of one `torchrun` this is."""

import hashlib
import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Ranks:
    """This process among those that `torchrun` started; rank 0 of 1 without it."""

    rank: int
    local_rank: int
    world_size: int
    # Tells this job, and this attempt of it, from others in the same folder.
    job: str = ""
    attempt: int = 0

    @classmethod
    def from_environment(cls) -> "Ranks":
        """What `torchrun` says in RANK, LOCAL_RANK and WORLD_SIZE."""
        names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
        job = repr([os.environ.get(name) for name in names])
        return cls(
            int(os.environ.get("RANK", "0")),
            int(os.environ.get("LOCAL_RANK", "0")),
            int(os.environ.get("WORLD_SIZE", "1")),
            hashlib.sha256(job.encode()).hexdigest()[:8],
            int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
        )

    @property
    def alone(self) -> bool:
        """Whether there is no other process to join."""
        return self.world_size == 1
