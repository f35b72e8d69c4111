"""The rank that runs this: its device, and its place in the job. CPUs with gloo, GPUs with NCCL."""

import os

import torch
import torch.distributed as dist

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if CUDA else "cpu"


def join_job() -> None:
    """Wait for all ranks that torchrun started; a rank on a CPU takes one core."""
    if CUDA:
        torch.cuda.set_device(DEVICE)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if CUDA else "gloo")
