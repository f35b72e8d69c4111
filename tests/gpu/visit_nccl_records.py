"""One visit to several GPUs: what NCCL's log and torch's flight recorder say of a rank that hangs.

    python tests/gpu/visit_nccl_records.py [--ranks 4] [--output FOLDER]

Starts torchrun: all ranks run collectives with NCCL, then all but the last one enter an all-reduce
more. Each dumps its flight recorder; NCCL logs to a file a rank. gpuprof reads them and must name
the last rank. Prints what it found and what is wrong, and exits 1 where something is. Without GPUs
it runs on gloo, which has no log.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gpuprof.collectors.opening import open_traces
from gpuprof.reports.sections.recorder import stuck_sentence
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze

_SIZES = (1024, 2**18, 2**22, 2**26)
_ENTER_S = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=max(2, torch.cuda.device_count()))
    parser.add_argument("--output", type=Path, default=Path(os.environ.get("OUT", ".")))
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        hang(arguments.output)
        return 0
    folder = arguments.output / "nccl_records"
    folder.mkdir(parents=True, exist_ok=True)
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", str(arguments.ranks)]
    environment = {
        **os.environ,
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,NET,P2P,COLL,TUNING",
        "NCCL_DEBUG_FILE": str(folder / "nccl.%h.%p.log"),
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_FR_BUFFER_SIZE": "2000",
    }
    subprocess.run(
        [sys.executable, *torchrun, __file__, "--output", str(folder)],
        env=environment,
        check=True,
        timeout=300,
    )
    capture = open_traces(sorted(folder.iterdir()))
    problems = judge(analyze(capture), arguments.ranks, with_log=torch.cuda.is_available())
    for problem in problems:
        print("PROBLEM", problem)
    return int(bool(problems))


def hang(folder: Path) -> None:
    """One rank: collectives of several sizes, then one that the last rank does not enter."""
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu", int(os.environ["LOCAL_RANK"]) * on_gpu)
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for size in _SIZES:
        message = torch.ones(size, device=device)
        for _ in range(3):
            dist.all_reduce(message)
        share = message[: size // ranks]
        dist.all_gather([torch.empty_like(share) for _ in range(ranks)], share)
    if rank < ranks - 1:
        dist.all_reduce(torch.ones(2**20, device=device), async_op=True)
    time.sleep(_ENTER_S)
    c10d: Any = torch._C._distributed_c10d
    dump = getattr(c10d, "_dump_nccl_trace", None) if on_gpu else None
    content: bytes = (dump or c10d._dump_fr_trace)()
    (folder / f"nccl_trace_rank_{rank}").write_bytes(content)
    # The collective never ends, and an orderly end would wait for it.
    sys.stdout.flush()
    os._exit(0)


def judge(analysis: Analysis, ranks: int, *, with_log: bool) -> list[str]:
    """What is not as it must be."""
    problems = []
    recorder = analysis.recorder
    last, others = (ranks - 1,), tuple(range(ranks - 1))
    for stuck in () if recorder is None else recorder.stuck:
        print(stuck_sentence(stuck))
    found = [(one.waiting, one.not_entered) for one in (recorder.stuck if recorder else ())]
    if (others, last) not in found:
        problems.append(f"stuck {found}, not ranks {others} waiting for {last}")
    if not with_log:
        return problems
    if analysis.nccl is None:
        return [*problems, "no log of NCCL was read"]
    one = analysis.nccl.communicators[0]
    print(one)
    print("warnings", analysis.nccl.warnings, "settings", analysis.nccl.settings)
    if (one.size, one.ranks, one.not_initialised) != (ranks, tuple(range(ranks)), ()):
        problems.append(f"the communicator of all ranks is {one}")
    told = ("version", "channels", "transports", "chosen")
    problems += [f"the log says no {name}" for name in told if not getattr(one, name)]
    sizes = {each.message_bytes for each in one.chosen if each.collective == "all-reduce"}
    if not {4 * size for size in _SIZES} <= sizes:
        problems.append(f"algorithms of all-reduces of {sizes} bytes, run were {_SIZES} floats")
    return problems


if __name__ == "__main__":
    sys.exit(main())
