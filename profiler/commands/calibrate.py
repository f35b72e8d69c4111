"""`gpuprof calibrate`."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from gpuprof.collectors.manifest import Calibration, Device, MeasuredCeiling
    from gpuprof.roofline.cost_models.cost import FlopKind
    from gpuprof.roofline.machine.ceilings import Roof

# The order of the table's rows, by kind.
_ORDER = ("compute", "memory", "link")


class CalibrateCommand:
    """Measure what this machine's devices reach, and keep it.

    Matrix products in each precision and DRAM bandwidth; on a GPU also its vector
    units, L2, shared memory, links and launch cost. Each is the median of repeats
    with its spread. Reports show these ceilings beside the datasheet's; for a CPU
    they are the only ones. The figures are kept by device and torch version and
    measured again with --force.
    """

    name = "calibrate"
    summary = "measure this machine's ceilings"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add this command's arguments."""
        parser.add_argument(
            "-f",
            "--force",
            action="store_true",
            help="measure again what is already known, and replace FILE",
        )
        parser.add_argument(
            "--device", help="cpu, cuda:0, ... (default: every visible GPU, else the CPU)"
        )
        parser.add_argument(
            "--json", type=Path, metavar="FILE", help="also write the calibrations to FILE"
        )

    def run(self, arguments: argparse.Namespace) -> int:
        """Calibrate and print one table a device."""
        import msgspec
        from rich.console import Console

        from gpuprof.collectors.storage import refuse_existing, write_file
        from gpuprof.reports import formatting

        if arguments.json is not None:
            refuse_existing(arguments.json, force=arguments.force)
        console = Console()
        calibrations = []
        for device in _devices(arguments.device):
            calibration = _measure(device, force=arguments.force)
            calibrations.append(calibration)
            console.print(ceiling_table(calibration))
            for sentence in remarks(calibration):
                print(formatting.printable(sentence))
            print(_whereabouts(calibration))
        if arguments.json is not None:
            content = msgspec.json.format(msgspec.json.encode(calibrations), indent=1)
            write_file(arguments.json, content)
        return 0


def _measure(device: "Device", *, force: bool) -> "Calibration":
    from rich.console import Console

    from gpuprof.profiler.machine.calibration_cache import calibrate_cached

    label = f"Calibrating {device.name}"
    with Console(stderr=True).status(label) as status:
        return calibrate_cached(
            device, force=force, progress=lambda what: status.update(f"{label}: {what}")
        )


def ceiling_table(calibration: "Calibration") -> "Table":
    """The ceilings of one device: measured, with their spread, and the datasheet's beside."""
    from rich.table import Table
    from rich.text import Text

    from gpuprof.reports import formatting
    from gpuprof.roofline.machine.ceilings import Roof, datasheet_ceilings
    from gpuprof.roofline.machine.devices import find_spec

    device = calibration.device
    lookup = find_spec(device)
    roof = None if lookup.spec is None else Roof(datasheet_ceilings(lookup.spec), "datasheet")
    title = f"{formatting.printable(device.name)}, torch {calibration.torch}"
    if calibration.threads is not None:
        title += f", {calibration.threads} threads"
    table = Table(title=Text(title, style="bold"), title_justify="left", caption_justify="left")
    table.add_column("Ceiling", no_wrap=True)
    table.add_column("Measured", justify="right", no_wrap=True)
    table.add_column("Spread", justify="right", no_wrap=True)
    if lookup.spec is None:
        table.caption = Text(f"No datasheet figures: {lookup.reason}.")
    else:
        table.caption = Text(f"Datasheet: {lookup.spec.source}, dense.")
        table.add_column("Datasheet", justify="right", no_wrap=True)
    table.add_column("How")
    for measured in sorted(calibration.ceilings, key=lambda each: _ORDER.index(each.kind)):
        cells = [
            measured.name,
            _rate(measured.kind, measured.rate),
            formatting.percent(measured.spread),
        ]
        if roof is not None:
            promised = _datasheet_ceiling(roof, measured)
            cells.append(formatting.UNKNOWN if promised is None else _rate(*promised))
        table.add_row(*cells, Text(measured.method))
    return table


def remarks(calibration: "Calibration") -> "Iterator[str]":
    """What starting work costs, the state of the device, and what was not measured."""
    from gpuprof.reports import formatting

    for cost in calibration.launch_costs:
        text = (
            f"Launch cost, {cost.what}: {formatting.duration(cost.host_ns)} of the host"
            f" at least, {formatting.duration(cost.host_median_ns)} in the median"
        )
        if cost.device_ns is not None:
            text += (
                f", {formatting.duration(cost.device_ns)} of the device"
                f" (spread {formatting.percent(cost.device_spread)})"
            )
        yield f"{text}."
    yield from _clocks(calibration)
    for sentence in calibration.conditions:
        yield f"{sentence[:1].upper()}{sentence[1:]}."
    for reason in calibration.left_out:
        yield f"Not measured: {reason}."


def _clocks(calibration: "Calibration") -> "Iterator[str]":
    """The SM clock while all that was measured, and what was slowed down."""
    clocks = [each.sm_clock_mhz for each in calibration.ceilings if each.sm_clock_mhz is not None]
    if clocks:
        low, high = min(clocks), max(clocks)
        yield f"SM clock {high} MHz." if low == high else f"SM clock {low} to {high} MHz."
    for reason in sorted({reason for each in calibration.ceilings for reason in each.slowed_by}):
        names = [each.name for each in calibration.ceilings if reason in each.slowed_by]
        yield f"Lowered by {reason} in {', '.join(names)}."


def _datasheet_ceiling(roof: "Roof", measured: "MeasuredCeiling") -> tuple[str, float] | None:
    """Kind and rate of the datasheet's ceiling for what was measured."""
    if measured.precision is not None:
        kind: FlopKind = "vector" if measured.unit == "vector" else "matmul"
        promised = roof.compute_rate(kind, measured.precision)
    elif measured.kind == "link":
        promised = roof.link_rate(measured.level or "")
    else:
        promised = roof.memory_rate(measured.level or "")
    return None if promised is None else (promised.kind, promised.rate)


def _whereabouts(calibration: "Calibration") -> str:
    """Where the calibration is kept, or why it is not."""
    from gpuprof.profiler.machine.calibration_cache import (
        MAXIMUM_KEPT_SPREAD,
        cache_file,
        is_steady,
        load_cached,
    )

    circumstances = (calibration.device, calibration.torch, calibration.threads)
    file = cache_file(*circumstances)
    if load_cached(*circumstances) == calibration:
        return f"Kept in {file}"
    if not is_steady(calibration):
        return (
            f"Not kept, because a spread is over {MAXIMUM_KEPT_SPREAD:.0%}:"
            " measure again when the machine is quiet."
        )
    return f"Not kept, because {file.parent} cannot be written."


def _rate(kind: str, rate: float) -> str:
    from gpuprof.reports import formatting

    return formatting.flops_rate(rate) if kind == "compute" else formatting.byte_rate(rate)


def _devices(wanted: str | None) -> "Sequence[Device]":
    """The devices to calibrate. Raises `CommandError` where `wanted` is not one of them."""
    from gpuprof.collectors.errors import CommandError, MissingDependencyError
    from gpuprof.collectors.live.fingerprint import collect_fingerprint, cpu_device

    fingerprint = collect_fingerprint()
    if fingerprint.torch is None:
        raise MissingDependencyError("torch", "measure ceilings", "torch>=2.6")
    if wanted is None:
        return fingerprint.devices
    if wanted == "cpu":
        return (cpu_device(),)
    gpus = {f"cuda:{d.index}": d for d in fingerprint.devices if d.kind != "cpu"}
    if wanted not in gpus:
        names = ", ".join(("cpu", *gpus))
        raise CommandError(f"--device {wanted}: this machine has {names}", exit_code=2)
    return (gpus[wanted],)
