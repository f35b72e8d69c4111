"""How far the host is ahead of the device: launches that were made and have not begun."""

import numpy as np
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.roofline.host.windows import step_windows
from gpuprof.roofline.host_figures import LaunchQueue
from gpuprof.roofline.work.attribution import launch_of_kernels


def launch_queue(capture: Capture) -> LaunchQueue | None:
    """The queue of the busiest device of an attributed one-rank capture in its profiled steps.

    From the begin of a launch call to the begin of the first piece of its work. None where the
    capture has no launches with device work.
    """
    begun = _launches(capture)
    if begun.is_empty():
        return None
    device, begun = _busiest(begun)
    launched = begun["launch_ns"].to_numpy()
    # Clocks of host and device may differ by a few microseconds: nothing begins before its launch.
    started = np.maximum(begun["begun_ns"].to_numpy(), launched)
    windows = step_windows(capture)
    first_ns = int(launched.min()) if windows is None else int(windows[0].min())
    last_ns = int(started.max()) if windows is None else int(windows[1].max())
    times = np.concatenate([launched, started, [first_ns, last_ns]])
    changes = np.concatenate([np.ones(len(launched)), -np.ones(len(started)), [0, 0]]).astype(int)
    # Of one moment launches come first, so that the queue is never below nothing.
    order = np.lexsort((-changes, times))
    times, depths = times[order], np.cumsum(changes[order])[:-1]
    lengths_ns = np.diff(np.clip(times, first_ns, last_ns))
    if not lengths_ns.sum():
        return None
    by_depth = np.argsort(depths, kind="stable")
    reached = np.cumsum(lengths_ns[by_depth])
    half = int(np.searchsorted(reached, reached[-1] / 2))
    return LaunchQueue(
        device=device,
        median=int(depths[by_depth][half]),
        maximum=int(depths.max()),
        empty_fraction=float(lengths_ns[depths == 0].sum() / lengths_ns.sum()),
        median_delay_ns=int(np.median(started - launched)),
    )


def _launches(capture: Capture) -> pl.DataFrame:
    """One row a launch and device: when it was made, when its work began, how much there was."""
    found = pl.concat(
        [
            capture.kernels.select(
                *("kind", "process", "device", "correlation", "step", "start_ns", "end_ns")
            ),
            launch_of_kernels(capture).select("launch_ns"),
        ],
        how="horizontal",
    ).filter((pl.col("kind") != "op") & pl.col("launch_ns").is_not_null())
    if (capture.steps["phase"] == "profiled").any():
        found = found.filter(pl.col("step").is_not_null())
    return found.group_by("process", "device", "correlation", maintain_order=True).agg(
        pl.col("launch_ns").first(),
        begun_ns=pl.col("start_ns").min(),
        busy_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
    )


def _busiest(begun: pl.DataFrame) -> tuple[int, pl.DataFrame]:
    by_device = begun.group_by("device", maintain_order=True).agg(pl.col("busy_ns").sum())
    device = by_device.sort("busy_ns", descending=True, maintain_order=True)["device"][0]
    return device or 0, begun.filter(pl.col("device").eq_missing(device))
