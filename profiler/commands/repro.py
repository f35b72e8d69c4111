"""`gpuprof repro`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprof.profiler.amounts import whole
from gpuprof.profiler.json_output import add_json, write_json
from gpuprof.reports.json_answers.schemas import REPRO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuprof.roofline.explain.calls import AlikeCalls

_MOST_LISTED = 10


class ReproCommand:
    """Write a script that runs one operator of a capture again.

    It has the operator's recorded shapes, strides and types, needs nothing but
    torch, times the call as gpuprof bench does, and prints FLOPs, bytes and the
    share of the roof by the ceilings of the capture.

    OP is compared with whole names first (aten::mm or mm), then with parts of
    them; a kernel's name stands for the operators that launch it. Of calls with
    different arguments the one with most device time is taken, or --pick.
    """

    name = "repro"
    summary = "write a script that runs one operator of a capture"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Command`."""
        parser.add_argument(
            "capture", type=Path, help="capture, or a trace that gpuprof analyze reads"
        )
        parser.add_argument("op", metavar="OP", help="name of an operator, or a part")
        parser.add_argument(
            "--pick", type=whole, metavar="N", help="of several calls the one numbered N"
        )
        parser.add_argument(
            "-o", "--output", type=Path, metavar="FILE", help="script to write (OP.py here)"
        )
        parser.add_argument("-f", "--force", action="store_true", help="replace an old script")
        parser.add_argument("--rank", type=int, metavar="R", help="the rank to look at (the first)")
        add_json(parser, REPRO)

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`. Raises `CommandError` for what cannot be called, and `CaptureError`."""
        from gpuprof.collectors.files.writing import refuse_existing, write_file
        from gpuprof.profiler.captures import read_capture_and_analysis
        from gpuprof.profiler.repro.recorded import as_python, choose_call
        from gpuprof.reports.console.streams import write_line, write_note

        if arguments.output is not None:
            refuse_existing(arguments.output, force=arguments.force)
        capture, analysis = read_capture_and_analysis(arguments.capture, arguments.rank)
        number = arguments.pick or 1
        chosen, found = choose_call(capture, analysis, arguments.op, number)
        call = as_python(chosen)
        from gpuprof.profiler.repro.script import file_name, render_script

        output: Path = arguments.output or Path(file_name(chosen))
        refuse_existing(output, force=arguments.force)
        write_file(output, render_script(analysis, chosen, call).encode())
        if len(found) > 1 and arguments.pick is None:
            _tell_others(arguments.op, found)
        if arguments.json:
            from gpuprof.reports.json_answers.of_captures import Repro

            answer = Repro(
                file=str(output),
                operator=chosen.group.name,
                overload=call.operator,
                detail=chosen.group.detail,
                number=number,
                numbers=len(found),
                calls=chosen.group.calls,
                median_ns=chosen.median_ns,
                flops=chosen.flops,
                bytes_read=chosen.bytes_read,
                bytes_written=chosen.bytes_written,
                defaults=call.defaults,
            )
            write_json(REPRO, answer)
        else:
            write_note(f"gpuprof: wrote {output}; it needs torch alone")
            write_line(f"python {output}")
        return 0


def _tell_others(name: str, found: "Sequence[AlikeCalls]") -> None:
    """On stderr, which calls there are beside the first."""
    from gpuprof.reports.console.streams import write_note
    from gpuprof.reports.formatting import duration
    from gpuprof.reports.shapes import readable_shapes

    write_note(
        f"gpuprof: {name} has {len(found)} calls with different arguments; this is number 1:"
    )
    for number, each in enumerate(found[:_MOST_LISTED], 1):
        shapes = readable_shapes(each.detail, each.name)
        write_note(
            f"{number:4}  {duration(each.device_ns):>9}  {each.calls} x {each.name} {shapes}"
        )
    if len(found) > _MOST_LISTED:
        write_note(f"      and {len(found) - _MOST_LISTED} more")
