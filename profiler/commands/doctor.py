"""`gpuprof doctor`."""

import argparse


class DoctorCommand:
    """List what this machine offers for profiling, and how to get what is missing.

    Checks the GPUs and their driver, what torch was built with (kineto, CUPTI),
    the readings of NVML, Nsight Systems and Nsight Compute, the permission to read
    GPU counters, and the Python packages. Changes nothing; the exit code is 0
    whatever is missing.
    """

    name = "doctor"
    summary = "list what this machine offers and how to get what is missing"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add this command's arguments."""
        parser.add_argument("--json", action="store_true", help="print the checks as JSON")

    def run(self, arguments: argparse.Namespace) -> int:
        """Run all checks and print them."""
        import msgspec

        from gpuprof.profiler.machine.checks import all_checks
        from gpuprof.reports.console.streams import write_bytes
        from gpuprof.reports.console.terminal import stdout
        from gpuprof.reports.machine.checks import checks_table

        checks = all_checks()
        if arguments.json:
            write_bytes(msgspec.json.format(msgspec.json.encode(checks), indent=1) + b"\n")
        else:
            stdout().print(checks_table(checks))
        return 0
