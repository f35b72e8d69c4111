"""What collectives take on the links of a machine, as `torchrun ... gpuprof calibrate` measured it.

Structs are part of `rank=R/process.json`, and kept in the user's cache folder.
"""

import msgspec


class CollectiveTimes(msgspec.Struct, frozen=True, kw_only=True):
    """What one collective takes by its size, where no rank comes late."""

    # As roofline/collectives.toml names it.
    collective: str
    # "nccl", "gloo".
    backend: str
    ranks: int
    # On which these ranks are.
    hosts: int
    # The one that the library was told to use: "ring", "tree"; "" where it chose itself.
    algorithm: str = ""
    # (bytes of the message by nccl-tests' definition, ns), the smallest first: the median of
    # `repeats` on a GPU, the least on a CPU, where other programs only lengthen it.
    times: tuple[tuple[int, float], ...]
    repeats: int
    # (maximum - minimum) / median over the repeats of the largest message.
    spread: float
    measured_ns: int


class LinkCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """The collectives measured among devices of one kind."""

    # Name of each rank's device.
    device: str
    torch: str
    # "NCCL 2.28.9"; "" where the backend has no version of its own.
    library: str = ""
    collectives: tuple[CollectiveTimes, ...] = ()
    # Settings of the library that were in force, "NCCL_ALGO=Ring".
    settings: tuple[str, ...] = ()
    # Of the CPU's cores meanwhile, what other programs used on the first rank's host.
    other_work: float | None = None
    # What was not measured, and why.
    left_out: tuple[str, ...] = ()
