"""Capture -> what memory the process used, and for what."""

from typing import Final

import msgspec
import numpy as np
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.roofline.memory.driver_calls import driver_calls
from gpuprof.roofline.memory.fragmentation import fragmentation
from gpuprof.roofline.memory.kinds import with_kinds
from gpuprof.roofline.memory.lifetimes import Lifetimes, lifetimes
from gpuprof.roofline.memory.moment import moment_of_events
from gpuprof.roofline.memory.out_of_memory import DeviceEvents, out_of_memory
from gpuprof.roofline.memory.timeline import step_memory, timeline
from gpuprof.roofline.memory_figures import DeviceMemory, MemoryUse, StepMemory
from gpuprof.roofline.work.attribution import steps_at

# Moments at which all that lives was seen.
_COMPLETE: Final = ("profile end", "snapshot")
# The last step's peak stands for all where it is this close to the highest: what lives in it is
# known best, for it ends when live objects are looked at.
_SAME_PEAK: Final = 0.99


def memory_use(capture: Capture) -> MemoryUse | None:
    """What memory the one rank of `capture` used; None where nothing was recorded of it."""
    devices = []
    by_device: dict[int | None, DeviceEvents] = {}
    for device in _devices(capture):
        at_device = pl.col("device").eq_missing(device)
        seen = capture.memory_blocks.filter(at_device)
        events = capture.allocations.filter(at_device & pl.col("bytes").is_not_null())
        memory = _of_the_run(capture, device, _at_end(seen))
        if not events.is_empty():
            lives = lifetimes(events, _at_end(seen))
            blocks = with_kinds(lives, seen, capture)
            by_device[device] = DeviceEvents(lives, blocks)
            memory = _with_events(memory, lives, blocks, capture)
        devices.append(memory)
    failure = out_of_memory(capture, by_device)
    if failure is None and not any(map(_is_known, devices)):
        return None
    calls = driver_calls(capture.launches)
    calls = calls.filter(steps_at(capture, calls["start_ns"]).is_not_null())
    return MemoryUse(
        devices=tuple(filter(_is_known, devices)),
        driver_calls=calls.height,
        driver_calls_ns=int((calls["end_ns"] - calls["start_ns"]).sum()),
        out_of_memory=failure,
    )


def _is_known(memory: DeviceMemory) -> bool:
    known = (memory.peak, memory.fragmentation, memory.run_peak_allocated_bytes)
    return any(each is not None for each in known)


def _at_end(seen: pl.DataFrame) -> pl.DataFrame:
    """Those rows of `memory_blocks` at which all that lived was seen when recording ended."""
    return seen.filter(pl.col("moment").is_in(_COMPLETE))


def _devices(capture: Capture) -> list[int | None]:
    """Devices whose memory was seen, in order; main memory only where there is no device."""
    seen = pl.concat([capture.allocations["device"], capture.memory_blocks["device"]]).unique()
    counted = {each.device for each in capture.processes[0].allocators}
    devices: list[int | None] = sorted({*seen.drop_nulls().to_list(), *counted})
    return devices or ([None] if len(seen) else [])


def _with_events(
    memory: DeviceMemory, lives: Lifetimes, blocks: pl.DataFrame, capture: Capture
) -> DeviceMemory:
    """`memory` with what its events tell; `blocks` are those of `lives` with their kinds."""
    steps = capture.steps.filter(pl.col("phase") == "profiled").sort("start_ns")
    by_step = step_memory(lives, steps)
    first = 0
    if memory.device is None and not lives.since_first_event and len(by_step) > 1:
        # What was there before and was given back is not seen: only the last step has all of it.
        by_step = by_step[-1:]
        first = lives.position_at(int(steps["start_ns"][-1]))
    position, step = _peak(lives, steps, by_step, first)
    reserved = lives.reserved[lives.reserved >= 0]
    return msgspec.structs.replace(
        memory,
        since_first_event=lives.since_first_event,
        peak=moment_of_events(lives, blocks, position, step=step),
        peak_reserved_bytes=int(reserved.max()) if len(reserved) else None,
        steps=by_step,
        timeline=timeline(lives, steps, first=first),
    )


def _of_the_run(capture: Capture, device: int | None, at_end: pl.DataFrame) -> DeviceMemory:
    """What is known of a device without its events."""
    process = capture.processes[0]
    # Main memory is shared with other programs.
    total = next(
        (
            known.total_memory_bytes
            for known in process.fingerprint.devices
            if known.kind != "cpu" and known.index == device
        ),
        None,
    )
    counted = next((each for each in process.allocators if each.device == device), None)
    fragments = fragmentation(at_end)
    if counted is None:
        return DeviceMemory(device=device, total_bytes=total, fragmentation=fragments)
    return DeviceMemory(
        device=device,
        total_bytes=total,
        fragmentation=fragments,
        run_peak_allocated_bytes=counted.peak_allocated_bytes,
        run_peak_reserved_bytes=counted.peak_reserved_bytes,
        retries=counted.retries,
        failures=counted.failures,
    )


def _peak(
    lives: Lifetimes, steps: pl.DataFrame, by_step: tuple[StepMemory, ...], first: int
) -> tuple[int, int | None]:
    """The position of the peak, and the number of its step."""
    if not by_step:
        return first + int(np.argmax(lives.allocated[first:])), None
    highest = max(each.peak_bytes for each in by_step)
    chosen = next(each for each in reversed(by_step) if each.peak_bytes >= _SAME_PEAK * highest)
    row = chosen.step - 1
    begin = lives.position_at(int(steps["start_ns"][row]))
    end = lives.position_at(int(steps["end_ns"][row]))
    return begin + int(np.argmax(lives.allocated[begin : end + 1])), chosen.step
