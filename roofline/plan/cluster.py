"""What a plan knows of the GPUs and their links, and how long a transfer takes on them."""

from dataclasses import dataclass
from typing import Final, Literal

from gpuprof.collectors.link_calibration import LinkCalibration
from gpuprof.roofline.bus_bandwidth import bus_factor
from gpuprof.roofline.machine.link_latency import collective_latency_ns
from gpuprof.roofline.machine.measured_links import find_times, time_of
from gpuprof.roofline.plan.layout import ParallelLayout
from gpuprof.roofline.plan_figures import PlannedTransfer, TransferGroup

# From one host to the next, ring, low-latency protocol: the least that NCCL's own model of its
# times has (NVIDIA/nccl src/graph/tuning.cc, hwLat).
_NETWORK_HOP_NS: Final = 2_700.0


@dataclass(frozen=True, kw_only=True)
class ComputeRate:
    """FLOP/s that one GPU reaches."""

    products: float
    attention: float
    attention_backward: float
    # executed: attention's FLOPs are those of the pairs that a causal mask keeps, and of what its
    # backward pass computes again. model: as MFU counts, each query with each key, nothing again.
    counted: Literal["executed", "model"]
    basis: str
    # What MFU is taken of.
    peak: float | None = None


@dataclass(frozen=True, kw_only=True)
class PlannedCluster:
    """GPUs of one kind. Rates are of one GPU, those of links one way."""

    device: str
    nodes: int
    gpus_per_node: int
    memory_bytes: int
    usable_bytes: int
    compute: ComputeRate
    # Of large arrays, and of the optimizer's many.
    memory_bytes_per_s: float
    optimizer_bytes_per_s: float
    # Bus bandwidth between GPUs of one node, and what a GPU sends to other nodes. Only None where
    # there is one GPU in a node, and one node.
    link_bytes_per_s: float | None = None
    link_basis: str = ""
    # What of its rate computing keeps beside collectives, which take multiprocessors.
    kept_beside_collectives: float = 1.0
    network_bytes_per_s: float | None = None
    # What collectives take by size, within a node or over whole nodes, which goes before their
    # bandwidth.
    measured: LinkCalibration | None = None

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.nodes * self.gpus_per_node


def ranks_in_node(group: TransferGroup, ranks: int, layout: ParallelLayout, node: int) -> int:
    """How many ranks of a group one node of `node` GPUs has.

    Ranks are numbered tensor first, then data, then pipeline, as Megatron-LM numbers them.
    """
    stage = layout.tensor * layout.data
    stride = {
        "tensor": 1,
        "expert": layout.tensor,
        "data": layout.tensor,
        "expert data": layout.tensor * layout.expert,
        "pipeline": stage,
        "embedding": stage * (layout.pipeline - 1),
    }[group]
    return max(1, min(ranks, node // stride))


def transfer_ns(row: PlannedTransfer, layout: ParallelLayout, cluster: PlannedCluster) -> float:
    """The time of all calls of `row`, one after the other and alone on the links.

    A ring's bus bandwidth is that of its slowest part. Where a node has q ranks of the group, the
    rings of the group use the network ports of q GPUs, because other groups use the others'. An
    all-to-all sends each rank its part: what leaves the node leaves by the GPU's own port.
    """
    near = ranks_in_node(row.group, row.ranks, layout, cluster.gpus_per_node)
    link, network = cluster.link_bytes_per_s, cluster.network_bytes_per_s
    nodes = -(-row.ranks // near)
    # Measured alone: beside groups that share a node's ports a group over nodes takes longer.
    if nodes == 1 or near == cluster.gpus_per_node:
        times = find_times(cluster.measured, row.kind, row.ranks, hosts=nodes)
        took = None if times is None else time_of(times, row.total_bytes // max(1, row.calls))
        if took is not None:
            return took * row.calls
    if row.kind == "send":
        rate = link if nodes == 1 else network
        moved = row.total_bytes / _known(rate)
        return moved * 1e9 + row.calls * _latency_ns(row, nodes)
    if row.kind == "all-to-all" and nodes > 1:
        leaving = row.total_bytes * (row.ranks - near) / row.ranks / _known(network)
        staying = row.total_bytes * (near - 1) / row.ranks / (link or float("inf"))
        return max(leaving, staying) * 1e9 + row.calls * _latency_ns(row, nodes)
    rates = [] if near == 1 else [_known(link)]
    rates += [] if nodes == 1 else [near * _known(network)]
    moved = row.total_bytes * bus_factor(row.kind, row.ranks) / min(rates)
    return moved * 1e9 + row.calls * _latency_ns(row, nodes)


def _latency_ns(row: PlannedTransfer, nodes: int) -> float:
    """The least time of one call: hops within nodes, and between them."""
    inside = collective_latency_ns(row.kind, row.ranks)
    rounds = {"all-reduce": 2, "all-to-all": 0, "send": 0}.get(row.kind, 1)
    hops = 0 if nodes == 1 else max(1, rounds * nodes)
    return inside + hops * _NETWORK_HOP_NS


def _known(rate: float | None) -> float:
    if rate is None:
        raise ValueError("a transfer between GPUs needs the rate of their link")
    return rate
