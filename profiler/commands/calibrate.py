"""`gpuprof calibrate`."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuprof.profiler.json_output import JsonOutput, add_json_or_file
from gpuprof.reports.json_answers.schemas import CALIBRATE, CALIBRATE_LINKS, JsonSchema

if TYPE_CHECKING:
    from gpuprof.collectors.link_calibration import LinkCalibration
    from gpuprof.collectors.manifest import Calibration, Device
    from gpuprof.profiler.run.ranks import Ranks


class CalibrateCommand:
    """Measure the peak rates of this machine's devices, and keep them.

    Matrix products in each precision and DRAM bandwidth; on a GPU also its vector
    units, L2, shared memory, links and launch cost; on a CPU also its caches.
    A GPU's rate is the median of repeats, a CPU's the fastest. Reports show these
    ceilings beside the datasheet's; for a CPU they are the only ones. The figures
    are kept for each device and torch version, unless other programs used the
    machine meanwhile; --force measures them again.

    Under torchrun all ranks measure collectives instead, by size and number of
    ranks, with NCCL between GPUs, else with gloo:
    torchrun --nproc-per-node 4 -m gpuprof calibrate
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
        add_json_or_file(parser, _schema)

    def run(self, arguments: argparse.Namespace) -> int:
        """Calibrate and print one table a device."""
        from gpuprof.profiler.run.ranks import Ranks
        from gpuprof.reports.json_answers.of_machines import DeviceCalibrations

        json = JsonOutput.of(arguments)
        json.refuse_existing(force=arguments.force)
        ranks = Ranks.of_torchrun()
        if not ranks.alone:
            return _calibrate_links(ranks, arguments, json)
        calibrations: list[Calibration] = []
        for device in _devices(arguments.device):
            calibration = _measure(device, force=arguments.force)
            calibrations.append(calibration)
            if not json.alone:
                _print(calibration)
        json.write(CALIBRATE, DeviceCalibrations(tuple(calibrations)))
        return int(any(calibration.refused for calibration in calibrations))


def _schema(_arguments: argparse.Namespace) -> JsonSchema:
    from gpuprof.profiler.run.ranks import Ranks

    return CALIBRATE if Ranks.of_torchrun().alone else CALIBRATE_LINKS


def _print(calibration: "Calibration") -> None:
    from gpuprof.reports.console.streams import write_line
    from gpuprof.reports.console.terminal import stdout
    from gpuprof.reports.formatting import printable
    from gpuprof.reports.machine.calibration import ceiling_table, copies_table, remarks

    if calibration.ceilings:
        stdout().print(ceiling_table(calibration))
    copies = copies_table(calibration)
    if copies is not None:
        stdout().print(copies)
    for sentence in remarks(calibration):
        stdout().print(printable(sentence))
    write_line(_whereabouts(calibration))


def _measure(device: "Device", *, force: bool) -> "Calibration":
    from gpuprof.profiler.machine.calibration_cache import calibrate_cached
    from gpuprof.reports.console.progress import showing_stages

    with showing_stages(f"Calibrating {device.name}") as progress:
        return calibrate_cached(device, force=force, progress=progress)


def _calibrate_links(ranks: "Ranks", arguments: argparse.Namespace, json: JsonOutput) -> int:
    """Measure collectives with all ranks; rank 0 prints them. Raises `CommandError`."""
    from gpuprof.collectors.errors import (
        TORCH,
        CommandError,
        MissingDependencyError,
        describe,
    )
    from gpuprof.reports.console.progress import showing_stages

    try:
        import torch
    except ModuleNotFoundError as error:
        raise MissingDependencyError("torch", "measure collectives", TORCH) from error
    from gpuprof.profiler.machine.link_calibration import calibrate_links

    if arguments.device not in (None, "cpu"):
        wanted = f"--device {arguments.device}"
        raise CommandError(f"{wanted}: under torchrun each rank has a GPU, or cpu", exit_code=2)
    on_cpu = arguments.device == "cpu" or not torch.cuda.is_available()
    with showing_stages("Measuring", hidden=ranks.rank != 0) as progress:
        try:
            calibration = calibrate_links(
                ranks.local_rank, on_cpu=on_cpu, force=arguments.force, progress=progress
            )
        # What torch.distributed raises: ranks that do not come, a rank that died, no such GPU.
        except (RuntimeError, ValueError) as error:
            raise CommandError(f"collectives cannot be measured: {describe(error)}") from error
    if ranks.rank == 0:
        if not json.alone:
            _print_links(calibration)
        json.write(CALIBRATE_LINKS, calibration)
    return int(bool(calibration.left_out))


def _print_links(calibration: "LinkCalibration") -> None:
    from gpuprof.profiler.machine.link_calibration_cache import link_cache_file, load_links
    from gpuprof.reports.console.streams import write_line
    from gpuprof.reports.console.terminal import stdout
    from gpuprof.reports.formatting import printable
    from gpuprof.reports.machine.link_calibration import (
        lines_table,
        link_remarks,
        link_tables,
    )

    write_line(printable(f"{calibration.device}, torch {calibration.torch} {calibration.library}"))
    for table in link_tables(calibration):
        stdout().print(table)
    if calibration.collectives:
        stdout().print(lines_table(calibration))
    for sentence in link_remarks(calibration):
        stdout().print(printable(sentence))
    file = link_cache_file(calibration.device, calibration.torch)
    kept = load_links(calibration.device, calibration.torch)
    if kept is None:
        write_line(f"Not kept, because {file.parent} cannot be written.")
    else:
        write_line(f"Kept in {file}")


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
