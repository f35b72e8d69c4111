"""`gpuprof run --nsys`: the program under Nsight Systems, and what that recorded in the capture.

The run is as without it, but Nsight Systems holds CUPTI: torch's profiler has the operators, and
the recording of the same steps the device's work. Between them the program says where the profiled
steps begin and end (cudaProfilerStart and Stop), so that nothing is recorded in the timed ones.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from gpuprof.collectors import nsys, storage
from gpuprof.collectors.errors import CollectorError, CommandError, GpuprofError, describe
from gpuprof.collectors.files.temporary import temporary_folder
from gpuprof.collectors.joining.captures import join
from gpuprof.collectors.manifest import ENDED_BY_A_SIGNAL
from gpuprof.collectors.tools import find_tool
from gpuprof.profiler.captures import store
from gpuprof.profiler.page_output import PageOutput
from gpuprof.profiler.run.own_process import add_warning, capture_of, ended_as, run_program
from gpuprof.profiler.run.telling import tell_of
from gpuprof.reports.console.streams import write_note
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.work.attribution import attribute

# docs.nvidia.com/nsight-systems/UserGuide, "CLI Profile Command Switch Options".
OPTIONS: Final = (
    "--trace=cuda,nvtx",
    # Each kernel of a CUDA graph by itself.
    "--cuda-graph-trace=node",
    # Samples of the CPU would cost the program time, and nothing here reads them.
    "--sample=none",
    "--cpuctxsw=none",
    "--capture-range=cudaProfilerApi",
    "--capture-range-end=stop",
    # The program ends when it wants to, and nobody waits for what it leaves running.
    "--kill=none",
    "--wait=primary",
    "--force-overwrite=true",
)
# nsys prints on stdout, which is the program's: the program gets our streams back before it starts.
_WITH_STREAMS: Final = """
import os, sys
with open(sys.argv[3], "w") as file:
    file.write(str(os.getpid()))
for descriptor, stream in ((int(sys.argv[1]), 1), (int(sys.argv[2]), 2)):
    os.dup2(descriptor, stream)
    os.close(descriptor)
os.execv(sys.argv[4], sys.argv[4:])
"""
# Where a copy of nsys lies in Nsight Compute, what makes reports lies in a folder beside it.
_IMPORTERS: Final = ("host-linux-*/QdstrmImporter", "linux-desktop-*/QdstrmImporter")


def find_nsys() -> str:
    """The path of `nsys`. Raises `CommandError` where there is none that can be run."""
    found = find_tool("nsys")
    if found is None:
        raise CommandError(
            "--nsys: Nsight Systems (nsys) is neither on PATH nor installed in its usual places; "
            "get it from developer.nvidia.com/nsight-systems, or name it in gpuprof.toml: [tools] "
            'nsys = "/path/to/nsys"'
        )
    if not os.access(found, os.X_OK) or not os.path.isfile(found):
        raise CommandError(f"--nsys: {found} is no program that can be run")
    return found


def run_under_nsys(
    nsys_path: str,
    program: Sequence[str],
    output: Path,
    *,
    quiet: bool,
    page: PageOutput | None = None,
) -> int:
    """Run `program` under Nsight Systems; this process ends as the program did.

    `program` is a `gpuprof run` that stores its capture at `output`. The report is kept in it.
    Where there is nothing to join, one line on stderr and the capture's warnings say why.
    """
    with temporary_folder("nsys") as folder:
        files = _Files(folder)
        status, process = _run(nsys_path, program, files)
        stored = None if process is None else capture_of(process, output)
        if stored is None:
            if process is None:
                raise CommandError(f"--nsys: nsys did not start the program: {files.last_line()}")
            # The program did not start; what stands there with --force is an older capture.
            return ended_as(status)
        try:
            _add_recording(nsys_path, files, stored)
        except (GpuprofError, OSError) as error:
            write_note(f"gpuprof: no recording of Nsight Systems: {describe(error)}")
            add_warning(
                stored,
                f"no recording of Nsight Systems: {describe(error)}",
                further=files.kept(),
            )
        except KeyboardInterrupt:
            write_note("gpuprof: no recording of Nsight Systems: interrupted; the capture is kept")
    tell_of(stored, page, quiet=quiet)
    return ended_as(status)


class _Files:
    """What one run leaves in its temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.report = folder / "report.nsys-rep"
        # What nsys leaves where it could not make a report of it.
        self.stream = folder / "report.qdstrm"
        self.said = folder / "said"
        self.process = folder / "process"

    def last_line(self) -> str:
        """What nsys said last, without its progress bars."""
        text = self.said.read_text(errors="replace").replace("\r", "\n")
        lines = [line.strip() for line in text.split("\n")]
        said = [line for line in lines if line and not line.startswith("[")]
        return said[-1][:300] if said else "nsys said nothing"

    def kept(self) -> dict[str, bytes]:
        """The report, by its name in the capture."""
        return {storage.NSYS_REPORT: self.report.read_bytes()} if self.report.is_file() else {}


def _run(nsys_path: str, program: Sequence[str], files: _Files) -> tuple[int, int | None]:
    """The program's exit status and its process id; None where it was not started."""
    with files.said.open("wb") as said, _our_streams() as (output, errors):
        command = [
            *(nsys_path, "profile", *OPTIONS, f"--output={files.report.with_suffix('')}"),
            *(
                sys.executable,
                "-I",
                "-c",
                _WITH_STREAMS,
                str(output),
                str(errors),
                str(files.process),
            ),
            *program,
        ]
        try:
            status, _ = run_program(command, said=said, kept_open=(output, errors))
        except OSError as error:
            raise CommandError(f"--nsys: {nsys_path}: {describe(error)}") from error
    process = None
    with suppress(OSError, ValueError):
        process = int(files.process.read_text())
    return status, process


@contextmanager
def _our_streams() -> Iterator[tuple[int, int]]:
    """Further descriptors of stdout and stderr."""
    output, errors = os.dup(1), os.dup(2)
    try:
        yield output, errors
    finally:
        os.close(output)
        os.close(errors)


def _add_recording(nsys_path: str, files: _Files, stored: Path) -> None:
    """Raises `CollectorError` or `CaptureError` where nothing can be joined."""
    capture = storage.load(stored)
    if capture.processes[0].ending in ENDED_BY_A_SIGNAL:
        return
    devices = capture.processes[0].fingerprint.devices
    if devices and devices[capture.processes[0].device].kind != "cuda":
        raise CollectorError("the program ran on no NVIDIA GPU, whose work nsys records")
    if not files.report.is_file() and files.stream.is_file():
        _import(nsys_path, files)
    if not files.report.is_file():
        raise CollectorError(
            "nsys made no report: it records from the first profiled step on, which the program "
            f"did not reach, or it could not; its last line: {files.last_line()}"
        )
    recording = nsys.read(files.report)
    joined = join([capture, recording])
    if joined.kernels.is_empty() or len(joined.processes) > 1:
        said = "; ".join(recording.processes[0].warnings[:1])
        raise CollectorError(f"nothing of this process's profiled steps is in its report: {said}")
    attributed = attribute(joined)
    store(attributed, analyze(attributed), stored, further=files.kept())


def _import(nsys_path: str, files: _Files) -> None:
    """Make the report of what nsys recorded, where it did not find what does that."""
    beside = Path(os.path.realpath(nsys_path)).parent.parent
    importers = [path for pattern in _IMPORTERS for path in sorted(beside.glob(pattern))]
    for importer in importers:
        subprocess.run(
            [importer, "--input-file", files.stream, "--output-file", files.report],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if files.report.is_file():
            return
