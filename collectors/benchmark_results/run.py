"""One run of another tool's benchmark, as its file tells it."""

import msgspec


class ReportedBenchmark(msgspec.Struct, frozen=True, kw_only=True):
    """One benchmark of one run."""

    # What the tool calls it, with its axes; "" where its settings are all that names it.
    name: str = ""
    # What was measured: only runs with equal settings measured the same.
    settings: dict[str, str] = {}
    # One figure a metric, by the names and in the units of metrics.toml.
    figures: dict[str, float] = {}
    # Samples of the metric `time`, all of one process.
    samples_ns: tuple[float, ...] = ()


class BenchmarkRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run: a file, or one of the results in a file."""

    # The tool, as a table of metrics.toml.
    tool: str
    # "base/1.json", "runs.jsonl, line 3".
    place: str
    benchmarks: tuple[ReportedBenchmark, ...]
    # What decides the speed beside the settings, such as the device. A key that is absent is
    # unknown.
    surroundings: dict[str, str] = {}
    # What may decide it: versions, and what the user noted.
    remarks: dict[str, str] = {}
    # Numbers beside the tool's own: what a sweep gave to the server.
    parameters: dict[str, str] = {}
    # When it began and ended, by a clock that all runs of one machine share; None where the file
    # does not tell.
    start_ns: int | None = None
    end_ns: int | None = None
    # Requests that were sent and that failed; None where the file does not tell.
    requests: int | None = None
    failed_requests: int | None = None
    # Why none of its figures counts, in words; "" where they do.
    problem: str = ""
