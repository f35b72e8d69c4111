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
    units, L2, shared memory, links and launch cost; on a CPU also its caches.
    A GPU's rate is the median of repeats, a CPU's the fastest. Reports show these
    ceilings beside the datasheet's; for a CPU they are the only ones. The figures
    are kept for each device and torch version, unless other programs used the
    machine meanwhile; --force measures them again.
    """

    name = "calibrate"
    summary = "measure this machine's ceilings"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add this command's arguments."""
        parser.add_argument(
            "-f",
            "--force",
            action="store_true",
            help="measure again what is known (a CPU's higher rates stay), and replace FILE",
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
        from gpuprof.reports.machine.calibration import ceiling_table, copies_table, remarks

        if arguments.json is not None:
            refuse_existing(arguments.json, force=arguments.force, option="--json")
        calibrations: list[Calibration] = []
        for device in _devices(arguments.device):
            calibration = _measure(device, force=arguments.force)
            calibrations.append(calibration)
            if calibration.ceilings:
                stdout().print(ceiling_table(calibration))
            copies = copies_table(calibration)
            if copies is not None:
                stdout().print(copies)
            for sentence in remarks(calibration):
                stdout().print(printable(sentence))
            write_line(_whereabouts(calibration))
        if arguments.json is not None:
            content = msgspec.json.format(msgspec.json.encode(calibrations), indent=1)
            write_file(arguments.json, content)
        return int(any(calibration.refused for calibration in calibrations))


def _measure(device: "Device", *, force: bool) -> "Calibration":
    from gpuprof.profiler.machine.calibration_cache import calibrate_cached
    from gpuprof.reports.console.progress import showing_stages

    with showing_stages(f"Calibrating {device.name}") as progress:
        return calibrate_cached(device, force=force, progress=progress)


def _whereabouts(calibration: "Calibration") -> str:
    """Where the calibration is kept, or why it is not."""
    from gpuprof.profiler.machine.calibration_cache import cache_file, load_cached
    from gpuprof.roofline.machine.quiet import why_not_kept

    circumstances = (calibration.device, calibration.torch, calibration.threads)
    file = cache_file(*circumstances)
    kept = load_cached(*circumstances)
    if kept == calibration:
        return f"Kept in {file}"
    reason = why_not_kept(calibration)
    if reason is None:
        return f"Not kept, because {file.parent} cannot be written."
    stays = "" if kept is None else " What was kept before stays."
    return f"Not kept, because {reason}: measure again when the machine is quiet.{stays}"


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
