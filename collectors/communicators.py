"""Who sends to whom, and over what: torch's process groups and NCCL's communicators.

Structs are part of `rank=R/process.json`. Unknown is None or empty.
"""

import msgspec


class ProcessGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One group of torch.distributed that this process is in."""

    name: str
    # What the program calls it.
    description: str = ""
    # Numbers in the whole job; empty where unknown.
    ranks: tuple[int, ...] = ()


class Transport(msgspec.Struct, frozen=True, kw_only=True):
    """How this rank sends to or receives from others."""

    # As NCCL names it: "P2P/CUMEM", "SHM/direct/direct", "NET/IB/0".
    name: str
    # Channels of all peers together, and how many peers.
    connections: int
    peers: int
    # The network card reads and writes the GPU's memory itself; None where no network is used.
    gpu_direct: bool | None = None


class ChosenAlgorithm(msgspec.Struct, frozen=True, kw_only=True):
    """With what NCCL ran collectives of one kind and size (NCCL_DEBUG_SUBSYS=TUNING)."""

    # "AllReduce".
    collective: str
    message_bytes: int
    # "RING", "TREE", "NVLS", ...; "LL", "LL128", "SIMPLE".
    algorithm: str
    protocol: str
    channels: int | None = None
    calls: int = 1


class Communicator(msgspec.Struct, frozen=True, kw_only=True):
    """One communicator of NCCL in this process."""

    # The same on all its ranks; "" where the log does not say.
    identity: str = ""
    rank: int | None = None
    ranks: int | None = None
    hosts: int | None = None
    # CUDA's number.
    device: int | None = None
    # "NCCL version 2.28.9+cuda13.0" says "2.28.9".
    version: str = ""
    # "IB", "Socket", "AWS Libfabric"; the devices it uses, as NCCL names them.
    network: str = ""
    network_devices: tuple[str, ...] = ()
    # Channels for collectives, for in-switch reduction and for sends.
    channels: int | None = None
    nvls_channels: int | None = None
    point_to_point_channels: int | None = None
    # Whether the switch can reduce; None where the log does not say.
    nvls: bool | None = None
    rings: int | None = None
    trees: int | None = None
    transports: tuple[Transport, ...] = ()
    chosen: tuple[ChosenAlgorithm, ...] = ()
    # Whether its initialisation ended.
    initialised: bool = False
    # Lines of its process that NCCL marked as warnings, without repeats.
    warnings: tuple[str, ...] = ()
    # Settings that the log says were in force, "NCCL_IB_DISABLE=1".
    settings: tuple[str, ...] = ()
