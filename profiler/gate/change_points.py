"""Change points by Apache Otava, which runs as a command of its own.

It is no dependency: it pins one release of numpy and brings clients of several clouds. See
docs/decisions/0010-otava-as-a-command.md.
"""

import csv
import io
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from gpuprof.collectors.errors import CommandError, problem_of
from gpuprof.collectors.files.temporary import temporary_folder
from gpuprof.roofline.gate.history import ChangePoint, HistorySeries

COMMAND = "otava"
HOW_TO_GET = "Change points need Apache Otava: `pipx install apache-otava`"
# In series without a change 1 or 2 of 100 have a point by chance at this level, and 5 to 7 at
# Otava's own of 1e-3 (measured on 60 nights, docs/history.md).
MOST_P_VALUE = 1e-4
LEAST_CHANGE = 0.01
# Fewer points have no two levels.
FEWEST_POINTS = 4
_TIMEOUT_S = 300


class _Change(msgspec.Struct):
    metric: str
    index: int
    mean_before: float
    mean_after: float
    pvalue: float


class _Group(msgspec.Struct):
    changes: list[_Change]


def is_installed() -> bool:
    """Whether the command is on PATH."""
    return shutil.which(COMMAND) is not None


def change_points_or_remark(
    series: Sequence[HistorySeries],
) -> tuple[tuple[tuple[ChangePoint, ...], ...] | None, str]:
    """The change points of each; None and a sentence where they cannot be looked for.

    Raises as `find_change_points`.
    """
    if not is_installed():
        return None, f"{HOW_TO_GET}."
    return find_change_points(series), ""


def find_change_points(
    series: Sequence[HistorySeries],
) -> tuple[tuple[ChangePoint, ...], ...]:
    """The change points of each series; needs the command on PATH.

    Raises `CommandError` with its last line where it fails.
    """
    names = {f"s{i}": one for i, one in enumerate(series) if len(one.points) >= FEWEST_POINTS}
    if not names:
        return tuple(() for _ in series)
    with temporary_folder("history") as folder:
        for name, one in names.items():
            (folder / f"{name}.csv").write_text(as_csv(one))
        configuration = folder / "otava.yaml"
        configuration.write_text(as_configuration(names))
        printed = _run(["--since", "1970-01-01", "-M", str(LEAST_CHANGE), *names], configuration)
    found = parse(printed)
    return tuple(found.get(f"s{index}", ()) for index in range(len(series)))


def as_csv(series: HistorySeries) -> str:
    """The points of `series` as Otava reads them."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("time", "commit", "value"))
    for point in series.points:
        moment = datetime.fromtimestamp(point.measured_ns // 10**9, tz=timezone.utc)
        writer.writerow((moment.isoformat(), point.commit or "", repr(point.value)))
    return text.getvalue()


def as_configuration(names: Sequence[str] | dict[str, HistorySeries]) -> str:
    """Otava's configuration of one test for each name, as JSON, which is YAML."""
    return json.dumps(
        {
            "tests": {
                name: {
                    "type": "csv",
                    "file": f"{name}.csv",
                    "time_column": "time",
                    "attributes": ["commit"],
                    "metrics": {"value": {"direction": -1, "scale": 1, "column": "value"}},
                    "csv_options": {"delimiter": ",", "quote_char": '"'},
                }
                for name in names
            }
        },
        indent=1,
    )


def parse(printed: str) -> dict[str, tuple[ChangePoint, ...]]:
    """The change points by test, from what `otava analyze --output json` printed: a line a test.

    Raises `CommandError` for anything else.
    """
    found: dict[str, tuple[ChangePoint, ...]] = {}
    for line in printed.splitlines():
        if not line.startswith("{"):
            continue
        try:
            # Its numbers are text.
            tests = msgspec.json.decode(line, type=dict[str, list[_Group]], strict=False)
        except ValueError as error:
            raise CommandError(f"otava printed something unknown: {error}") from error
        for name, groups in tests.items():
            found[name] = tuple(
                ChangePoint(
                    index=change.index,
                    change=change.mean_after / change.mean_before - 1,
                    p_value=change.pvalue,
                )
                for group in groups
                for change in group.changes
                if change.pvalue <= MOST_P_VALUE and change.mean_before > 0
            )
    return found


def _run(arguments: Sequence[str], configuration: Path) -> str:
    try:
        done = subprocess.run(
            [COMMAND, "analyze", "--output", "json", *arguments],
            cwd=configuration.parent,
            env={**os.environ, "OTAVA_CONFIG": str(configuration)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"otava took more than {_TIMEOUT_S} s") from error
    except OSError as error:
        raise CommandError(f"otava cannot be run: {problem_of(error)}; {HOW_TO_GET}") from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise CommandError(f"otava ended with {done.returncode}: {' '.join(said)}")
    return done.stdout
