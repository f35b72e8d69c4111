"""Collectives over all ranks of torchrun: NCCL's, written out over sends, and over shared memory.

The size names the collective: "all-reduce:1MiB". NCCL_ALGO and the like are read by NCCL itself.

Nsight Compute replays each kernel by itself, which hangs one that waits for other ranks, so nothing
here is compared with its counters. What the ring and the tree send is counted as it is sent.
"""

from gpuprof.reference_kernels.suite import DeviceType, Requirement, Version

_EVERYWHERE: tuple[DeviceType, ...] = ("cuda", "cpu")
_CUDA: tuple[DeviceType, ...] = ("cuda",)
_CPU: tuple[DeviceType, ...] = ("cpu",)


def _version(
    name: str,
    summary: str,
    devices: tuple[DeviceType, ...],
    requires: tuple[Requirement, ...] = (),
) -> Version:
    return Version("collectives", name, summary, ("fp32", "fp16", "bf16"), devices, requires)


VERSIONS = (
    _version("nccl", "NCCL with the algorithm it chooses", _CUDA),
    _version("nccl-ring", "NCCL's all-reduce along a ring", _CUDA),
    _version("nccl-tree", "NCCL's all-reduce along two trees", _CUDA),
    _version("gloo", "gloo on the CPU", _CPU),
    _version("ring", "all-reduce along a ring, written out over sends", _EVERYWHERE),
    _version("tree", "all-reduce along a binomial tree, written out over sends", _EVERYWHERE),
    _version(
        "triton-one-shot",
        "all-reduce: each rank reads all others' memory",
        _CUDA,
        ("triton",),
    ),
    _version(
        "triton-one-shot-push",
        "all-reduce: each rank writes its message into all others' memory",
        _CUDA,
        ("triton",),
    ),
    _version(
        "triton-two-shot",
        "all-reduce: each rank sums its share and writes it to all",
        _CUDA,
        ("triton",),
    ),
    _version("torch-one-shot", "torch's own one-shot all-reduce", _CUDA),
    _version("torch-two-shot", "torch's own two-shot all-reduce", _CUDA),
)
