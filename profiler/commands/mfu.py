"""`gpuprof mfu`."""

import argparse
from pathlib import Path

from gpuprof.profiler.amounts import amount, seconds, whole

_PRECISIONS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4", "int4")


class MfuCommand:
    """Work out MFU and MBU of a transformer in closed form, without running it.

    6 N + 12 L H Q T FLOPs a token in training (PaLM), a third of it in
    inference. With a capture, set the formula beside the FLOPs that its operators
    count, and explain the difference line by line. Amounts may end in k, M, B
    (or G), T, P; times in s, ms, us.
    """

    name = "mfu"
    summary = "MFU and MBU in closed form, beside a capture's count"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add this command's arguments."""
        add = parser.add_argument
        add("capture", nargs="?", type=Path, help="capture to set the formula beside")
        kind = parser.add_mutually_exclusive_group()
        for mode, text in (
            ("training", "forward and backward pass (default)"),
            ("inference", "forward pass only, such as a prefill"),
            ("decode", "one token a sequence, from a cache of --sequence tokens"),
        ):
            kind.add_argument(f"--{mode}", dest="mode", action="store_const", const=mode, help=text)
        parser.set_defaults(mode="training")
        model = parser.add_argument_group("model")
        model.add_argument("--params", type=whole, metavar="N", help="all parameters")
        model.add_argument(
            "--active-params", type=whole, metavar="N", help="those that a token meets (MoE)"
        )
        model.add_argument("--experts", type=whole, metavar="E", help="experts a layer (MoE)")
        model.add_argument(
            "--experts-per-token", type=whole, metavar="K", help="experts that a token meets"
        )
        model.add_argument(
            "--lora-params", type=whole, metavar="N", help="of adapters; the rest is frozen"
        )
        model.add_argument("--layers", type=whole, metavar="L")
        model.add_argument("--hidden", type=whole, metavar="H", help="width of the model")
        model.add_argument("--heads", type=whole, metavar="A", help="query heads")
        model.add_argument("--kv-heads", type=whole, metavar="A", help="key heads (GQA)")
        model.add_argument(
            "--head-dim", type=whole, metavar="D", help="size of a head (default: H / A)"
        )
        model.add_argument(
            "--sequence", type=whole, metavar="S", help="tokens a sequence, or in the cache"
        )
        model.add_argument(
            "--window", type=whole, metavar="W", help="of sliding-window attention, in tokens"
        )
        model.add_argument(
            "--vocabulary", type=whole, metavar="V", help="leaves the input embedding out of N"
        )
        model.add_argument(
            "--tied", action="store_true", help="the embedding is the output head too"
        )
        model.add_argument(
            "--recompute", action="store_true", help="full activation checkpointing: HFU too"
        )
        speed = parser.add_argument_group("speed")
        speed.add_argument("--tokens-per-second", type=amount, metavar="X", help="of all GPUs")
        speed.add_argument("--step-time", type=seconds, metavar="TIME")
        speed.add_argument("--batch", type=whole, metavar="B", help="sequences a step, all GPUs")
        speed.add_argument(
            "--tokens", type=whole, metavar="D", help="tokens a step, all GPUs (default: B S)"
        )
        speed.add_argument(
            "--gpus", type=whole, metavar="N", default=1, help="all that share the work"
        )
        speed.add_argument(
            "--kv-bytes", type=whole, metavar="BYTES", help="keys and values read in a step"
        )
        peaks = parser.add_argument_group("peaks of one GPU")
        peaks.add_argument("--device", metavar="NAME", help='such as "H100 SXM", "A100-SXM4-80GB"')
        peaks.add_argument(
            "--peak", type=amount, metavar="FLOPS", help="FLOP/s, in place of --device"
        )
        peaks.add_argument(
            "--bandwidth", type=amount, metavar="BYTES", help="bytes/s, in place of --device"
        )
        peaks.add_argument(
            "--precision", default="bf16", choices=_PRECISIONS, help="of products (default: bf16)"
        )
        peaks.add_argument(
            "--weight-bits", type=whole, metavar="BITS", help="of a stored weight, if others"
        )
        add("--json", action="store_true", help="print the figures as JSON")

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Command`. Raises `CommandError` and `CaptureError`."""
        import msgspec
        from rich.console import Console

        from gpuprof.reports.closed_form import closed_form_table
        from gpuprof.reports.terminal import facts_table
        from gpuprof.reports.utilization import utilization_facts
        from gpuprof.roofline.utilization.closed_form_answer import (
            answer,
            answer_facts,
            beside_capture,
        )

        if arguments.capture is None:
            found = answer(arguments)
            tables = [facts_table(answer_facts(found))]
            notes = found.notes
            figures: msgspec.Struct = found
        else:
            analysis, form = beside_capture(arguments)
            others = [fact for fact in utilization_facts(analysis) if fact.label != "Closed form"]
            tables = [closed_form_table(form, analysis.utilization), facts_table(others)]
            notes = ()
            figures = form
        if arguments.json:
            print(msgspec.json.format(msgspec.json.encode(figures)).decode())
            return 0
        console = Console()
        for table in tables:
            console.print(table)
        for note in notes:
            console.print(note, markup=False, highlight=False, style="dim")
        return 0
