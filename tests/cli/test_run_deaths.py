"""Some rows of the table of deaths; `scripts/try_deaths.py` runs all."""

import subprocess
from pathlib import Path

import pytest
from deaths import PHASES, WAYS, Death, deaths, problems
from fork_server import ForkServer

# Ways in turn, and phases in turn; those left out are much like one that is there.
LEFT_OUT = ("abort in C", "sys.exit with a sentence", "recursion")
FEW = [
    Death(PHASES[number % 5], way)
    for number, way in enumerate(way for way in WAYS if way.name not in LEFT_OUT)
] + [Death(phase, way) for phase in PHASES if phase.within for way in WAYS if way.name == "SIGTERM"]


def test_the_table_has_each_way_in_each_phase() -> None:
    table = list(deaths())
    assert {death.way for death in table} == set(WAYS)
    assert {death.phase for death in table} == set(PHASES)
    assert len({death.name for death in table}) == len(table) == 93
    assert set(FEW) < set(table)


@pytest.mark.parametrize("death", FEW, ids=lambda death: death.name)
def test_a_program_dies_as_without_gpuprof(
    tmp_path: Path, gpuprof_environment: dict[str, str], server: ForkServer, death: Death
) -> None:
    def run(folder: Path, arguments: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
        done = server.run(*arguments, folder=folder, environment=gpuprof_environment)
        # A forked interpreter that ends as such finds what its parent holds.
        done.stderr = done.stderr.partition("nanobind: leaked")[0]
        return done

    assert problems(death, tmp_path, run) == []
