"""Which rows of a page belong to a row: a kernel's operator and module, an operator's module."""

from collections import defaultdict
from collections.abc import Mapping

from gpuprof.reports.point_rows import row_points
from gpuprof.reports.sections.modules import module_rows
from gpuprof.roofline.analysis import Analysis


def row_links(analysis: Analysis) -> Mapping[str, tuple[str, ...]]:
    """The ids of the rows that each row lies in, by its id; rows that lie in none are left out."""
    modules = {module.path: row for row, module in module_rows(analysis) if module.path}
    operators = defaultdict(list)
    found: dict[str, tuple[str, ...]] = {}
    for row, point in row_points("op", analysis.ops):
        operators[point.name, point.detail, point.phase].append((row, point.module))
        if point.module in modules:
            found[row] = (modules[point.module],)
    for row, point in row_points("kernel", analysis.kernels):
        called_by = operators.get((point.op, point.op_detail, point.phase), ())
        # Without a module of its own its calls come from several.
        rows = [row for row, module in called_by if point.module in ("", module)]
        if point.module in modules:
            rows.append(modules[point.module])
        if rows:
            found[row] = tuple(rows)
    return found
