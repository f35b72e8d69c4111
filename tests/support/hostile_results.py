"""Damaged results of other tools' benchmarks, and what gpuprof keeps of a machine in its cache."""

import os
import random
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import benchmark_results as made
from capture_builder import H100
from hostile_reader import AWARE, temporary_folder
from mutations import damaged_bytes, damaged_json

from gpuprof.collectors.errors import CaptureError
from gpuprof.collectors.link_calibration import CollectiveTimes, LinkCalibration
from gpuprof.collectors.manifest import Calibration, Fingerprint, LaunchCost, MeasuredCeiling
from gpuprof.profiler.configuration.targets import Target
from gpuprof.profiler.gate.calibration_store import CalibrationStore, NoiseSession
from gpuprof.profiler.gate.reported_results import gate_results, read_side
from gpuprof.profiler.machine import calibration_cache, link_calibration_cache
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.suite import Rules

_TOOLS: Final = ("vllm", "sglang", "aiperf", "nvbench")
_REPEATS: Final = 5
_TARGET: Final = Target(name="train", script="train.py")


def _result(tool: str, run: int, file: Path | None = None) -> dict[str, Any]:
    if tool == "vllm":
        return made.vllm(run, **made.vllm_requests(failed=1))
    if tool == "nvbench" and file is not None:
        return made.with_samples(made.nvbench(run), file)
    return getattr(made, tool)(run)  # type: ignore[no-any-return]


def write_results(chance: random.Random, folder: Path) -> Path:
    """Repeats of two sides in `folder`, of which one is damaged; returns that."""
    tool = chance.choice(_TOOLS)
    files = result_files(folder)
    for run, file in enumerate((*files["base"], *files["head"])):
        made.store(file, _result(tool, run, file))
    damaged = chance.choice(files["head"])
    content = damaged.read_bytes()
    is_aware = chance.random() < AWARE
    damaged.write_bytes((damaged_json if is_aware else damaged_bytes)(chance, content))
    if tool == "nvbench" and chance.random() < 0.3:
        samples = Path(f"{damaged}-bin") / "0.bin"
        samples.write_bytes(damaged_bytes(chance, samples.read_bytes()))
    return damaged


def result_files(folder: Path) -> dict[str, list[Path]]:
    """Where the repeats of each side lie."""
    return {
        side: [folder / side / f"{number}.json" for number in range(_REPEATS)]
        for side in ("base", "head")
    }


def judge_results(damaged: Path) -> None:
    """The verdict on all of them."""
    sides = result_files(damaged.parent.parent)
    base, head = (read_side(sides[side]) for side in ("base", "head"))
    gate_results(base, head, Rules(RuleSettings()))


# -- what is kept of a machine ---------------------------------------------------------------------


@lru_cache(maxsize=1)
def _kept() -> dict[str, bytes]:
    """A calibration, one of links and a session of the gate's noise, by their names."""
    ceiling = MeasuredCeiling(
        kind="memory", name="read", rate=3e12, spread=0.01, repeats=5, level="DRAM"
    )
    calibration = Calibration(
        device=H100, torch="2.9", threads=None, measured_ns=1, ceilings=(ceiling,),
        launch_costs=(
            LaunchCost(
                what="empty kernel", host_ns=4e3, host_median_ns=5e3, batches=3, repeats=5
            ),
        ),
    )  # fmt: skip
    times = CollectiveTimes(
        collective="all_reduce", backend="nccl", ranks=2, hosts=1,
        times=((1024, 9000.0), (1 << 20, 30_000.0)), repeats=5, spread=0.1, measured_ns=1,
    )  # fmt: skip
    links = LinkCalibration(device=H100.name, torch="2.9", collectives=(times,))
    session = NoiseSession(
        tool_version="1", created_ns=1, project="/project", target=_TARGET,
        fingerprint=Fingerprint(), rebuilt=False, seconds=3.0,
        differences={"train": {"time": (0.01, -0.02, 0.005)}},
    )  # fmt: skip
    with temporary_folder() as folder, _cache_in(folder):
        calibration_cache.store(calibration)
        link_calibration_cache.store_links(links)
        CalibrationStore(Path("/project")).add(session)
        return {
            str(file.relative_to(folder)): file.read_bytes()
            for file in sorted(folder.rglob("*.json"))
        }


def _cache_in(folder: Path) -> Any:
    return patch.dict(os.environ, {"XDG_CACHE_HOME": str(folder)})


def write_cache(chance: random.Random, folder: Path) -> Path:
    """A cache folder with one file damaged."""
    damaged = chance.choice(sorted(_kept()))
    for name, content in _kept().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name == damaged:
            is_aware = chance.random() < AWARE
            content = (damaged_json if is_aware else damaged_bytes)(chance, content)
        path.write_bytes(content)
    return folder


def read_cache(folder: Path) -> None:
    """What is left out because it is damaged is refused here, as of a cache nobody is told."""
    with _cache_in(folder):
        calibration = calibration_cache.load_cached(H100, "2.9", None)
        links = link_calibration_cache.load_links(H100.name, "2.9")
        store = CalibrationStore(Path("/project"))
        session = store.latest(_TARGET)
        noise = store.calibrations(_TARGET, Fingerprint())
    if calibration is None or links is None or session is None or not noise:
        raise CaptureError(folder, "left out")
