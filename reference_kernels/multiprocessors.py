"""How many multiprocessors a GPU has: what the grid of a persistent kernel is as large as."""

import torch


def multiprocessors(device: torch.device) -> int:
    """Of a GPU."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
