"""How far the host is ahead of the device: launches that were made and have not begun."""

import numpy as np
import polars as pl

from gpuprof.collectors.call_tree.nesting import NEVER, NONE, Integers
from gpuprof.collectors.capture import Capture
from gpuprof.roofline.host.windows import step_windows
from gpuprof.roofline.host_figures import LaunchQueue
from gpuprof.roofline.work.attribution import launch_rows


def launch_queue(capture: Capture) -> LaunchQueue | None:
    """The queue of the busiest device of an attributed one-rank capture in its profiled steps.

    From the begin of a launch call to the begin of the first piece of its work. None where the
    capture has no launches with device work.
    """
    found = _launched_work(capture)
    if found.is_empty():
        return None
    device, own = _busiest(found)
    launched, begun = _begun(capture, own)
    # Clocks of host and device may differ by a few microseconds: nothing begins before its launch.
    started = np.maximum(begun, launched)
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
    of_depth = np.zeros(depths.max() + 1, np.int64)
    np.add.at(of_depth, depths, lengths_ns)
    reached = np.cumsum(of_depth)
    return LaunchQueue(
        device=device,
        median=int(np.searchsorted(reached, reached[-1] / 2)),
        maximum=int(depths.max()),
        empty_fraction=float(lengths_ns[depths == 0].sum() / lengths_ns.sum()),
        median_delay_ns=int(np.median(started - launched)),
    )


def _launched_work(capture: Capture) -> pl.DataFrame:
    """The device work of launches: columns device, start_ns, busy_ns and launch, the row of it."""
    found = capture.kernels.select(
        *("kind", "device", "step", "start_ns"),
        busy_ns=pl.col("end_ns") - pl.col("start_ns"),
        launch=pl.Series(launch_rows(capture)),
    ).filter((pl.col("kind") != "op") & (pl.col("launch") != NONE))
    if (capture.steps["phase"] == "profiled").any():
        found = found.filter(pl.col("step").is_not_null())
    return found


def _busiest(found: pl.DataFrame) -> tuple[int, pl.DataFrame]:
    by_device = found.group_by("device", maintain_order=True).agg(pl.col("busy_ns").sum())
    device = by_device.sort("busy_ns", descending=True, maintain_order=True)["device"][0]
    return device or 0, found.filter(pl.col("device").eq_missing(device))


def _begun(capture: Capture, own: pl.DataFrame) -> tuple[Integers, Integers]:
    """When each launch of the work of one device was made, and when the first of its work began."""
    begun = np.full(capture.launches.height, NEVER)
    np.minimum.at(begun, own["launch"].to_numpy(), own["start_ns"].to_numpy())
    launched = np.flatnonzero(begun != NEVER)
    return capture.launches["start_ns"].to_numpy()[launched], begun[launched]
