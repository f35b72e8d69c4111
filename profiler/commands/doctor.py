"""`gpuprof doctor`."""

import argparse

from gpuprof.profiler.json_output import add_json, write_json
from gpuprof.reports.json_answers.schemas import DOCTOR


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
        add_json(parser, DOCTOR)

    def run(self, arguments: argparse.Namespace) -> int:
        """Run all checks and print them."""
        from gpuprof.profiler.machine.checks import all_checks
        from gpuprof.reports.console.terminal import stdout
        from gpuprof.reports.machine.checks import checks_table

        checks = all_checks()
        if arguments.json:
            from gpuprof.reports.json_answers.of_machines import Checks

            write_json(DOCTOR, Checks(tuple(checks)))
        else:
            stdout().print(checks_table(checks))
        return 0
