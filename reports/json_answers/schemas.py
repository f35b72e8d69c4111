"""The names and versions of what every command answers as JSON. Imports no struct.

Each is published as docs/schemas/NAME.schema.json. A version goes up where a field goes, or has
another type or meaning; new fields leave it.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class JsonSchema:
    """The form of one answer."""

    name: str
    version: int
    # "module:Name" of its struct within gpuprof, which is imported where a schema is written.
    struct: str


_CAPTURES: Final = "reports.json_answers.of_captures"
_GATES: Final = "reports.json_answers.of_gates"
_MACHINES: Final = "reports.json_answers.of_machines"

ANALYSIS: Final = JsonSchema("analysis", 4, "roofline.analysis:Analysis")
BASELINE: Final = JsonSchema("baseline", 1, f"{_GATES}:Baselines")
BENCH: Final = JsonSchema("bench", 1, "roofline.bench.results:BenchReport")
BENCH_CLAIMS: Final = JsonSchema("bench_claims", 1, f"{_MACHINES}:JudgedClaims")
BENCH_LIST: Final = JsonSchema("bench_list", 1, f"{_MACHINES}:Families")
BENCH_SIZES: Final = JsonSchema("bench_sizes", 1, "roofline.bench.sizes:SizesReport")
CALIBRATE: Final = JsonSchema("calibrate", 1, f"{_MACHINES}:DeviceCalibrations")
CALIBRATE_LINKS: Final = JsonSchema(
    "calibrate_links", 1, "collectors.link_calibration:LinkCalibration"
)
COMPARE: Final = JsonSchema("compare", 2, "roofline.comparison.result:Comparison")
DOCTOR: Final = JsonSchema("doctor", 1, f"{_MACHINES}:Checks")
EXPLAIN: Final = JsonSchema("explain", 1, "roofline.explain.explain:WorkExplanation")
FILES: Final = JsonSchema("files", 1, f"{_CAPTURES}:WrittenFiles")
GATE: Final = JsonSchema("gate", 1, "roofline.gate.result:GateResult")
GATE_CALIBRATE: Final = JsonSchema("gate_calibrate", 1, f"{_GATES}:GateNoise")
GATE_DRY_RUN: Final = JsonSchema("gate_dry_run", 1, f"{_GATES}:GateDryRun")
GATE_PLAN: Final = JsonSchema("gate_plan", 1, f"{_GATES}:GatePlans")
GATE_SELFTEST: Final = JsonSchema("gate_selftest", 1, "roofline.gate.selftest:SelfTest")
HISTORY: Final = JsonSchema("history", 1, f"{_GATES}:HistoryLevels")
HISTORY_ADD: Final = JsonSchema("history_add", 1, f"{_GATES}:HistoryAdditions")
MATCHES: Final = JsonSchema("matches", 1, f"{_CAPTURES}:Matches")
MCP: Final = JsonSchema("mcp", 1, f"{_CAPTURES}:AgentAnswer")
MFU: Final = JsonSchema("mfu", 1, f"{_MACHINES}:MfuAnswer")
MFU_CAPTURE: Final = JsonSchema("mfu_capture", 1, "roofline.closed_form_figures:ClosedForm")
PLAN: Final = JsonSchema("plan", 1, "roofline.plan_figures:TrainingPlan")
REPRO: Final = JsonSchema("repro", 1, f"{_CAPTURES}:Repro")
SNAP: Final = JsonSchema("snap", 1, f"{_MACHINES}:Snap")
SENT: Final = JsonSchema("sent", 1, f"{_CAPTURES}:SentRun")
SUMMARY: Final = JsonSchema("summary", 1, f"{_CAPTURES}:Summary")

# All of this module.
SCHEMAS: Final = tuple(each for each in tuple(globals().values()) if isinstance(each, JsonSchema))
