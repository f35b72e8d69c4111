"""The families of reference kernels and their versions, as tables."""

from rich.table import Table

from gpuprof.reports.json_answers.of_machines import KernelFamily

_COLUMNS = ("Version", "Runs on", "dtypes", "What it is")


def family_table(family: KernelFamily) -> Table:
    """The versions of `family`, with the devices and packages that each needs."""
    title = f"{family.name}: sizes {family.size_form}"
    table = Table(title=title, title_justify="left", box=None)
    for column in _COLUMNS:
        table.add_column(column, no_wrap=column == "Version")
    for version in family.versions:
        needs = ", ".join((*version.devices, *version.requires))
        summary = f"{version.summary} ({version.plugin})" if version.plugin else version.summary
        table.add_row(version.name, needs, " ".join(version.dtypes), summary)
    return table
