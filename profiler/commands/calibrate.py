"""`gpuprof calibrate`."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuprof.collectors.manifest import Calibration, Device


class CalibrateCommand:
    """Measure the peak rates of this machine's devices, and keep them.

    Matrix products in each precision and DRAM bandwidth; on a GPU also its vector
    units, L2, shared memory, links and launch cost. Each is the median of repeats
    with its spread. Reports show these ceilings beside the datasheet's; for a CPU
    they are the only ones. The figures are kept for each device and torch version;
    --force measures them again.
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

        from gpuprof.collectors.files.writing import refuse_existing, write_file
        from gpuprof.reports.console.streams import write_line
        from gpuprof.reports.console.terminal import stdout
        from gpuprof.reports.formatting import printable
        from gpuprof.reports.machine.calibration import ceiling_table, remarks

        if arguments.json is not None:
            refuse_existing(arguments.json, force=arguments.force, option="--json")
        calibrations = []
        for device in _devices(arguments.device):
            calibration = _measure(device, force=arguments.force)
            calibrations.append(calibration)
            stdout().print(ceiling_table(calibration))
            for sentence in remarks(calibration):
                stdout().print(printable(sentence))
            write_line(_whereabouts(calibration))
        if arguments.json is not None:
            content = msgspec.json.format(msgspec.json.encode(calibrations), indent=1)
            write_file(arguments.json, content)
        return 0


def _measure(device: "Device", *, force: bool) -> "Calibration":
    from gpuprof.profiler.machine.calibration_cache import calibrate_cached
    from gpuprof.reports.console.progress import showing_stages

    with showing_stages(f"Calibrating {device.name}") as progress:
        return calibrate_cached(device, force=force, progress=progress)


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


def _devices(wanted: str | None) -> "Sequence[Device]":
    """The devices to calibrate. Raises `CommandError` where `wanted` is not one of them."""
    from gpuprof.collectors.errors import TORCH, CommandError, MissingDependencyError
    from gpuprof.collectors.live.fingerprint import collect_fingerprint, cpu_device

    fingerprint = collect_fingerprint()
    if fingerprint.torch is None:
        raise MissingDependencyError("torch", "measure ceilings", TORCH)
    if wanted is None:
        return fingerprint.devices
    if wanted == "cpu":
        return (cpu_device(),)
    gpus = {f"cuda:{d.index}": d for d in fingerprint.devices if d.kind != "cpu"}
    if wanted not in gpus:
        names = ", ".join(("cpu", *gpus))
        raise CommandError(f"--device {wanted}: this machine has {names}", exit_code=2)
    return (gpus[wanted],)
