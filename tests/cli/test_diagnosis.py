"""Programs of examples/diagnosis that need no GPU: are they told first what is wrong?"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Gpuprof = Callable[..., "subprocess.CompletedProcess[str]"]
EXAMPLES = Path(__file__).parents[2] / "examples" / "diagnosis"
EXPECTED = tomllib.loads((EXAMPLES / "expected.toml").read_text())
ON_A_CPU = [name for name, row in EXPECTED.items() if "cpu" in row["devices"]]


def marked_line(name: str) -> int:
    """The line that the finding must name."""
    lines = (EXAMPLES / f"{name}.py").read_text().splitlines()
    return next(at for at, line in enumerate(lines, 1) if line.endswith("# expected here"))


@pytest.mark.parametrize("name", ON_A_CPU)
def test_the_first_finding_is_what_is_wrong(name: str, gpuprof: Gpuprof, tmp_path: Path) -> None:
    schedule = ["--warmup", "2", "--timed", "3", "--profiled", "2", "--stop-after"]
    options = ["-o", "c.gpuprof", "--no-ceilings", *schedule]
    done = gpuprof("run", *options, str(EXAMPLES / f"{name}.py"), timeout_s=300)
    assert done.returncode == 0, done.stderr
    analysis = json.loads((tmp_path / "c.gpuprof" / "analysis.json").read_bytes())
    assert analysis["steps"]["profiled"] == 2
    assert analysis["advice"], done.stderr
    first = analysis["advice"][0]
    assert first["finding"] in EXPECTED[name]["finding"], done.stderr
    if EXPECTED[name].get("line"):
        places = [place["place"] for place in first["places"]]
        assert any(f"{name}.py:{marked_line(name)}" in place for place in places), places
