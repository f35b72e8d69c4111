"""NCCL's communicators over all ranks, as its logs tell: a part of an `Analysis`.

Frozen structs; unknown is None or empty.
"""

import msgspec


class LoggedTransport(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which ranks of a communicator send to each other."""

    # "P2P/CUMEM", "SHM/direct/direct", "NET/IB".
    name: str
    # The network card reads and writes the GPUs' memory itself; None without a network.
    gpu_direct: bool | None = None
    connections: int
    ranks: tuple[int, ...]


class LoggedAlgorithm(msgspec.Struct, frozen=True, kw_only=True):
    """With what NCCL ran collectives of one kind and size."""

    # As roofline/collectives.toml names it, else as NCCL does; the whole message.
    collective: str
    message_bytes: int
    algorithm: str
    protocol: str = ""
    channels: int | None = None
    calls: int

    @property
    def text(self) -> str:
        """ "tree LL128"."""
        return f"{self.algorithm} {self.protocol}".rstrip()


class LoggedCommunicator(msgspec.Struct, frozen=True, kw_only=True):
    """One communicator: what its ranks say alike is a value, what differs is in `differences`."""

    # "" for what the logs say of no certain communicator.
    identity: str = ""
    # Its ranks, and those with a log, as numbers of the job.
    size: int | None = None
    ranks: tuple[int, ...]
    not_initialised: tuple[int, ...] = ()
    hosts: int | None = None
    version: str = ""
    network: str = ""
    network_devices: tuple[str, ...] = ()
    channels: int | None = None
    nvls_channels: int | None = None
    nvls: bool | None = None
    rings: int | None = None
    trees: int | None = None
    transports: tuple[LoggedTransport, ...] = ()
    chosen: tuple[LoggedAlgorithm, ...] = ()
    # "version: 2.27.7 on ranks 0-2; 2.28.9 on rank 3".
    differences: tuple[str, ...] = ()


class LoggedWarning(msgspec.Struct, frozen=True):
    """A warning of NCCL, and the ranks that gave it."""

    text: str
    ranks: tuple[int, ...]


class NcclFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All communicators, the largest first."""

    communicators: tuple[LoggedCommunicator, ...]
    warnings: tuple[LoggedWarning, ...] = ()
    # "NCCL_IB_DISABLE=1", of any rank.
    settings: tuple[str, ...] = ()
