"""The gate on results of vLLM, SGLang, AIPerf and nvbench."""

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from benchmark_results import aiperf, nvbench, sglang, store, vllm, vllm_requests, with_samples

from gpuprof.collectors.benchmark_results.formats import read_runs
from gpuprof.collectors.benchmark_results.table import reported_metrics
from gpuprof.collectors.errors import CaptureError
from gpuprof.profiler.cli import main
from gpuprof.roofline.gate.history import values_of
from gpuprof.roofline.gate.judgement import Judgement
from gpuprof.roofline.gate.result import GateResult

Gate = Callable[..., tuple[int, GateResult]]


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Judge results, each in a file of its own; more arguments go to the command."""
    monkeypatch.chdir(tmp_path)

    def gate(
        base: list[dict[str, Any]], head: list[dict[str, Any]], *arguments: str
    ) -> tuple[int, GateResult]:
        files = {
            side: [str(store(Path(f"{side}-{i}.json"), result)) for i, result in enumerate(results)]
            for side, results in (("base", base), ("head", head))
        }
        sides = ["--base", *files["base"], "--head", *files["head"]]
        code = main(["gate", "results", *sides, "-f", *arguments])
        return code, msgspec.json.decode(
            Path("gpuprof-gate/gate.json").read_bytes(), type=GateResult
        )

    return gate


def by_metric(result: GateResult) -> dict[str, Judgement]:
    assert len({judgement.benchmark for judgement in result.judgements}) == 1
    return {judgement.metric.name: judgement for judgement in result.judgements}


def in_turn(
    make: Callable[..., dict[str, Any]], count: int = 5, factor: float = 1.0, **changed: Any
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Runs of base and head, one after the other; the head's are worse by `factor`."""
    base = [make(run, minutes=4 * run) for run in range(count)]
    head = [make(run + 50, factor=factor, minutes=4 * run + 2, **changed) for run in range(count)]
    return base, head


def test_a_slower_server_fails_in_each_metric_that_is_judged(gate: Gate) -> None:
    code, result = gate(*in_turn(vllm, factor=1.08))

    assert code == 1
    found = by_metric(result)
    assert list(found) == ["request_throughput", "output_throughput", "ttft", "tpot", "itl"]
    assert {j.verdict for j in found.values()} == {"REGRESSED"}
    # A rate falls where a time rises; both are told in the metric's own direction.
    assert found["ttft"].change == pytest.approx(0.08, abs=0.005)
    assert found["output_throughput"].change == pytest.approx(1 / 1.08 - 1, abs=0.005)
    assert found["ttft"].base == pytest.approx(42e6, rel=0.01)
    assert found["ttft"].benchmark == "Llama-3.1-8B"
    assert (result.tool, result.advisory, result.warnings) == ("vLLM", False, ())


def test_the_same_server_passes_and_a_faster_one_improves(gate: Gate) -> None:
    code, result = gate(*in_turn(vllm))
    assert (code, {j.verdict for j in result.judgements}) == (0, {"PASS"})

    code, result = gate(*in_turn(aiperf, factor=0.9))
    found = by_metric(result)
    assert code == 0
    assert list(found) == ["request_throughput", "output_throughput", "ttft", "itl", "e2el"]
    assert {j.verdict for j in found.values()} == {"IMPROVED"}


def test_too_few_repeats_are_told_in_one_line_with_what_to_do(
    gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    base, head = in_turn(vllm, factor=2.0)
    with pytest.raises(FileNotFoundError):
        gate(base[:3], head[:4])

    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "gpuprof: cannot judge: 3 repeats of the base and 4 of the head, and the rule needs 5 of "
        "each; run the benchmark again, base and head in turn, or set pairs = [3] in [gate] to "
        "find large changes only"
    )
    Path("gpuprof.toml").write_text("[gate]\npairs = [3]\n")
    code, result = gate(base[:3], head[:4])
    assert code == 1
    assert any("make 3 pairs" in warning for warning in result.warnings)


def test_requests_of_one_run_are_no_repeats(gate: Gate, capsys: pytest.CaptureFixture[str]) -> None:
    detailed = [vllm(i, factor=1 + i, **vllm_requests(200)) for i in range(2)]
    with pytest.raises(FileNotFoundError):
        gate(detailed[:1], detailed[1:])
    line = capsys.readouterr().err
    assert "cannot judge: 1 repeat of the base and 1 of the head" in line
    # One pair has no spread, so there is no number of looks that would do.
    assert "set pairs" not in line


def test_requests_give_what_the_summary_lacks(tmp_path: Path) -> None:
    summary = vllm(**vllm_requests(8, failed=3))
    del summary["p99_ttft_ms"], summary["failed"]
    summary["completed"] = 5
    file = store(tmp_path / "run.json", {**summary, "num_prompts": 8})

    (run,) = read_runs(file)

    (benchmark,) = run.benchmarks
    first = np.array([0.043, 0.044, 0.045, 0.046, 0.047])
    assert benchmark.figures["e2el"] == pytest.approx(np.median(first + 0.040) * 1e9)
    assert benchmark.figures["ttft_p99"] == pytest.approx(np.quantile(first, 0.99) * 1e9)
    # What the summary has is taken as it is.
    assert benchmark.figures["ttft"] == pytest.approx(summary["median_ttft_ms"] * 1e6)
    assert (run.requests, run.failed_requests) == (8, 3)


def test_every_metric_is_read_from_each_tool_that_has_it(tmp_path: Path) -> None:
    for name, result in (
        ("vllm", vllm(**vllm_requests())),
        ("sglang", sglang()),
        ("aiperf", aiperf()),
    ):
        (run,) = read_runs(store(tmp_path / f"{name}.json", result))
        assert set(run.benchmarks[0].figures) == {
            metric.name for metric in reported_metrics() if name in metric.keys
        }


def test_lines_of_one_file_are_runs(gate: Gate, tmp_path: Path) -> None:
    # A sweep over rates, five times; appended to one file as SGLang does.
    sides = []
    for side, factor in (("base", 1.0), ("head", 1.1)):
        runs = [
            sglang(run, factor=factor if rate == 4.0 else 1.0, request_rate=rate, tag=side)
            for run in range(5)
            for rate in (4.0, math.inf)
        ]
        sides.append(str(store(tmp_path / f"{side}.jsonl", *runs)))
    code = main(["gate", "results", "--base", sides[0], "--head", sides[1]])
    result = msgspec.json.decode(Path("gpuprof-gate/gate.json").read_bytes(), type=GateResult)

    assert code == 1
    verdicts: dict[str, set[str]] = {}
    for judgement in result.judgements:
        verdicts.setdefault(judgement.benchmark, set()).add(judgement.verdict)
    assert verdicts == {
        "SGLang request_rate=4.0": {"REGRESSED"},
        "SGLang request_rate=inf": {"PASS"},
    }
    assert any("do not tell when" in warning for warning in result.warnings)


def test_parameters_that_both_sides_swept_are_benchmarks_and_counters_of_runs_are_none(
    gate: Gate,
) -> None:
    # As `vllm bench sweep serve` writes what it gave to the server, and which run it was.
    sides = [
        [
            vllm(
                2 * run + (sequences == 8) + start,
                factor=factor if sequences == 8 else 1.0,
                minutes=8 * run + (4 if sequences == 8 else 0) + start / 10,
                max_num_seqs=sequences,
                repeat=str(run),
            )
            for run in range(5)
            for sequences in (4, 8)
        ]
        for factor, start in ((1.0, 0), (1.1, 20))
    ]
    code, result = gate(*sides)
    found = {(j.benchmark, j.verdict) for j in result.judgements}
    assert code == 1
    assert found == {
        ("Llama-3.1-8B max_num_seqs=4", "PASS"),
        ("Llama-3.1-8B max_num_seqs=8", "REGRESSED"),
    }
    # With another parameter on each side it is what is compared.
    code, result = gate(*in_turn(vllm, max_num_seqs=8))
    assert result.warnings == ("max_num_seqs: not told against 8",)
    assert {j.benchmark for j in result.judgements} == {"Llama-3.1-8B"}


def test_models_of_older_and_newer_files_name_the_benchmark(tmp_path: Path) -> None:
    newer = aiperf(input_config={"models": {"items": [{"name": "meta/Llama-3"}]}})
    (run,) = read_runs(store(tmp_path / "run.json", newer))
    assert run.benchmarks[0].settings["model"] == "meta/Llama-3"
    (run,) = read_runs(store(tmp_path / "run.json", aiperf()))
    assert run.benchmarks[0].settings["model"] == "Qwen/Qwen3-0.6B"
    # Of 2024: without rates of requests.
    older = sglang()
    for name in ("request_throughput", "input_throughput", "median_tpot_ms", "p99_tpot_ms"):
        del older[name]
    (run,) = read_runs(store(tmp_path / "run.jsonl", older))
    assert {"output_throughput", "ttft", "itl", "e2el"} <= run.benchmarks[0].figures.keys()


def test_other_settings_are_incomparable_and_not_new(gate: Gate) -> None:
    code, result = gate(*in_turn(vllm, factor=0.5, request_rate=8.0))

    assert code == 3
    assert {j.verdict for j in result.judgements} == {"INCOMPARABLE"}
    assert result.judgements[0].message == "request_rate: inf against 8.0"


def test_a_benchmark_that_the_head_lost_is_an_error_and_one_that_it_gained_is_new(
    gate: Gate,
) -> None:
    base = [nvbench(i, states=("2^16", "2^20", "2^24")) for i in range(5)]
    head = [nvbench(i + 9, states=("2^16", "2^20")) for i in range(5)]

    code, result = gate(base, head)
    found = {j.benchmark: (j.verdict, j.reason) for j in result.judgements}
    assert code == 1
    assert found["copy/Elements=2^24"] == ("ERROR", "missing-metric")
    assert found["copy/Elements=2^16"] == ("PASS", "no-change")

    code, result = gate(head, base)
    found = {j.benchmark: (j.verdict, j.reason) for j in result.judgements}
    assert (code, found["copy/Elements=2^24"]) == (0, ("PASS", "new"))


def test_a_state_that_some_runs_skipped_cannot_be_judged(gate: Gate) -> None:
    base = [nvbench(i, states=("2^16", "2^20") if i else ("2^16",)) for i in range(5)]

    code, result = gate(base, [nvbench(i + 9, factor=3.0) for i in range(5)])

    found = {j.benchmark: j for j in result.judgements}
    assert code == 1
    assert found["copy/Elements=2^16"].verdict == "REGRESSED"
    few = found["copy/Elements=2^20"]
    assert (few.verdict, few.pairs_wanted) == ("INCONCLUSIVE", 0)
    assert few.message.startswith("cannot judge: 4 repeats on each side")
    assert few.message.endswith("run the benchmark 1 more times on each side")


def test_samples_make_a_runs_median_and_are_read_where_the_files_lie(
    gate: Gate, tmp_path: Path
) -> None:
    def with_own(side: str, factor: float) -> list[dict[str, Any]]:
        return [
            with_samples(nvbench(i, factor=factor), tmp_path / f"{side}-{i}.json") for i in range(5)
        ]

    _, result = gate(with_own("base", 1.0), with_own("head", 1.0))
    judgement = result.judgements[0]
    # The slow tenth of the samples moves their mean by 5 % and not their median.
    assert judgement.base == pytest.approx(3e4, rel=0.01)
    assert all(len(m.samples_ns) == 50 for p in result.processes for m in p.measurements.values())

    # Medians are not compared with the means of files whose samples are gone.
    for file in (tmp_path / "head-0.json-bin").iterdir():
        file.unlink()
    (run,) = read_runs(tmp_path / "head-0.json")
    assert run.benchmarks[0].samples_ns == ()
    assert run.benchmarks[0].figures["time"] > 0

    cut = tmp_path / "head-1.json-bin" / "0.bin"
    cut.write_bytes(cut.read_bytes()[:-4])
    with pytest.raises(CaptureError, match="has 49 samples; expected 50"):
        read_runs(tmp_path / "head-1.json")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"arguments": ("--lgc", "base")},
            "GPU clocks: not locked by nvbench against locked to base by nvbench",
        ),
        ({"device": "NVIDIA H100"}, "devices: NVIDIA H200 against NVIDIA H100"),
    ],
)
def test_device_and_clock_lock_must_agree(gate: Gate, changed: dict[str, Any], said: str) -> None:
    code, result = gate(
        [nvbench(i) for i in range(5)], [nvbench(i, factor=2.0, **changed) for i in range(5)]
    )
    assert (code, {j.verdict for j in result.judgements}) == (3, {"INCOMPARABLE"})
    assert result.judgements[0].message == said


def test_notes_and_versions_are_said_and_nothing_more(gate: Gate) -> None:
    base, head = in_turn(vllm, version="0.12", total_input_tokens=40001)
    code, result = gate(base, head)
    assert code == 0
    assert result.warnings == (
        "total_input_tokens: 40000 against 40001",
        "version: not told against 0.12",
    )


def test_one_side_after_the_other_is_advisory_as_a_stored_baseline(gate: Gate) -> None:
    base = [vllm(i, minutes=2 * i) for i in range(5)]
    head = [vllm(i + 50, factor=1.2, minutes=100 + 2 * i) for i in range(5)]

    code, result = gate(base, head)
    assert (code, result.advisory) == (0, True)
    assert "advisory unless --allow-stored" in result.warnings[0]

    code, result = gate(base, head, "--allow-stored")
    assert (code, result.advisory) == (1, False)


def test_runs_at_the_same_time_are_told(gate: Gate) -> None:
    base, head = in_turn(vllm, duration=200.0)
    _, result = gate(base, head)
    assert "ran at the same time" in "".join(result.warnings)


def test_requests_that_fail_are_a_regression_where_every_run_has_more(gate: Gate) -> None:
    code, result = gate(*in_turn(vllm, factor=0.8, completed=150, failed=50))
    failed = by_metric(result)["failed_requests"]
    assert (code, failed.verdict) == (1, "REGRESSED")
    assert "0 requests of a run failed before, 50 after" in failed.message

    base, head = in_turn(vllm)
    head[2] = vllm(52, minutes=10, completed=199, failed=1)
    code, result = gate(base, head)
    assert (code, by_metric(result)["failed_requests"].level) == (0, "warn")


def test_a_run_of_which_no_request_succeeded_is_a_crash(gate: Gate) -> None:
    base, head = in_turn(vllm)
    head[1] = vllm(1, minutes=6, completed=0, failed=200, request_throughput=0.0)
    code, result = gate(base, head)
    assert code == 5
    assert "head-1.json: none of its requests succeeded" in result.judgements[0].message


def test_budgets_and_waivers_hold_for_reported_metrics(gate: Gate) -> None:
    Path("gpuprof.toml").write_text("""
[[budget]]
match = "Llama*"
ttft_p99 = { regress = "5%" }
ttft = { max = "40 ms" }
output_throughput = { regress = "20%", min = 500 }
[[waiver]]
match = "Llama*"
metric = "itl"
reason = "known"
expires = 2999-01-01
""")
    code, result = gate(*in_turn(vllm, factor=1.08))
    found = by_metric(result)
    assert code == 1
    assert found["ttft_p99"].verdict == "REGRESSED"
    assert found["ttft"].reason in ("slower", "over-maximum")
    assert found["output_throughput"].verdict == "PASS"
    assert found["itl"].level == "warn"
    assert "waived until 2999-01-01: known" in found["itl"].message


def test_a_history_keeps_reported_metrics_with_their_units(gate: Gate) -> None:
    _, result = gate(*in_turn(vllm))
    units = {value.metric: value.unit for value in values_of(result)}
    assert (units["ttft"], units["output_throughput"]) == ("ns", "tokens/s")


def test_results_of_a_tool_are_kept_as_they_are_and_are_no_baseline(
    gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    gate(*in_turn(vllm))
    assert main(["baseline", "save", "v1", "--from", "gpuprof-gate"]) == 2
    assert "keep their files, which `gpuprof gate results --base` takes" in capsys.readouterr().err


def test_pairs_beyond_a_look_are_named(gate: Gate) -> None:
    _, result = gate(*in_turn(vllm, count=7))
    assert [w for w in result.warnings if "of 7 pairs 5 are judged" in w]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ('{"request_thr', "line 1: is no JSON"),
        ("[1]", "expected a result"),
        ('{"a": 1}', "is something else; expected a result of vllm bench serve"),
        ('{"metadata": {}, "metrics": {}}', "has the requests of a run of AIPerf"),
        (
            '{"metadata": {"num_profile_runs": 5}, "metrics": {}}',
            "give profile_export_aiperf.json of each run",
        ),
        (json.dumps(vllm(median_ttft_ms=math.nan)), "median_ttft_ms: is nan; run the"),
        (json.dumps(vllm(median_ttft_ms="x")), "median_ttft_ms: 'x'; expected a number"),
        (json.dumps(sglang()) + '\n{"b": 2}', "line 2: is something else"),
        ('{"benchmarks": [{}], "devices": []}', "no complete result of nvbench"),
        (json.dumps({**vllm_requests(), **vllm(ttfts=[1])}), "differ in length"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_what_is_no_result_is_told_with_its_place(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "result.json"
    file.write_text(content)
    with pytest.raises(CaptureError) as error:
        read_runs(file)
    assert said in str(error.value)
    assert str(file) in str(error.value)


def test_compressed_files_and_pretty_ones_are_read(tmp_path: Path) -> None:
    file = tmp_path / "result.json.gz"
    file.write_bytes(gzip.compress(json.dumps(vllm(), indent=4).encode()))
    assert read_runs(file)[0].place == str(file)


def test_results_of_two_tools_and_a_file_twice_are_refused(
    gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(FileNotFoundError):
        gate([vllm(i) for i in range(5)], [sglang(i) for i in range(5)])
    assert "results of SGLang and vLLM, which define their metrics" in capsys.readouterr().err

    assert main(["gate", "results", "--base", *["base-0.json"] * 5, "--head", "head-0.json"]) == 2
    assert "base-0.json is given twice" in capsys.readouterr().err
