"""The metrics of other tools' benchmarks, as the gate's."""

from gpuprof.collectors.benchmark_results.table import reported_metrics
from gpuprof.roofline.gate.series import Metric

# By the name that a budget uses.
REPORTED_METRICS: dict[str, Metric] = {
    row.name: Metric(name=row.name, unit=row.unit, better=row.better) for row in reported_metrics()
}
# Those that are judged without a budget.
JUDGED = tuple(row.name for row in reported_metrics() if row.judged)
