"""`gpuprof gate results`: other tools' results, judged by the gate's rule."""

import argparse
from pathlib import Path

from gpuprof.profiler.gate.no_verdict import no_verdict
from gpuprof.profiler.gate.output_options import add_outputs, outputs_of
from gpuprof.profiler.gate.selection import configured


class ResultsAction:
    """Judge results of vLLM's and SGLang's serving benchmarks, AIPerf and nvbench.

    Each run is one repeat: give as many files of the base as of the head, at
    least as many as the rule needs (5), in the order in which they ran, base and
    head in turn. Verdicts, exit codes and files are those of `gpuprof gate`.
    """

    name = "results"
    summary = "judge result files of vLLM, SGLang, AIPerf or nvbench"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """See `Action`."""
        for side, what in (("base", "to compare with"), ("head", "that may be slower")):
            parser.add_argument(
                f"--{side}",
                dest=f"{side}_files",
                type=Path,
                nargs="+",
                required=True,
                metavar="FILE",
                help=f"results {what}, a repeat each",
            )
        parser.add_argument(
            "--allow-stored",
            action="store_true",
            help="let base results that were all made before the head's fail the job",
        )
        parser.add_argument(
            "--config", type=Path, metavar="FILE", help="instead of the nearest gpuprof.toml"
        )
        parser.add_argument(
            "--only", metavar="PATTERN", help="benchmarks whose name matches, such as 'copy*'"
        )
        add_outputs(parser, "where the results go")

    def run(self, arguments: argparse.Namespace) -> int:
        """See `Action`. Exit codes are those of `gpuprof gate`."""
        with no_verdict():
            return _judge(arguments)


def _judge(arguments: argparse.Namespace) -> int:
    from gpuprof.profiler.gate.reported_results import gate_results, read_side
    from gpuprof.profiler.gate.rules import suite_rules

    configuration, place = configured(arguments.config)
    rules = suite_rules(configuration, place)
    outputs = outputs_of(arguments)
    outputs.refuse_existing(force=arguments.force)
    result = gate_results(
        read_side(arguments.base_files),
        read_side(arguments.head_files),
        rules,
        only=arguments.only,
        on_inconclusive=configuration.gate.on_inconclusive,
        trust_stored=arguments.allow_stored,
    )
    outputs.prepare()
    outputs.write(result)
    return result.exit_code
