"""The result of a gate as small as it can be."""

import msgspec

from gpuprof.collectors.manifest import Device, Fingerprint
from gpuprof.roofline.gate.measurement import Measurement
from gpuprof.roofline.gate.result import GateResult, SideInfo
from gpuprof.roofline.gate.rule import RuleSettings
from gpuprof.roofline.gate.suite import MeasuredProcess

H100 = Device(index=0, kind="cuda", name="H100", total_memory_bytes=85, multiprocessors=132)
HERE = Fingerprint(devices=(H100,), driver="550.54", environment={"RANK": "0"})


def recorded_gate(
    *times: float, created_ns: int = 1, fingerprint: Fingerprint = HERE, commit: str | None = None
) -> GateResult:
    """One process of the head for each of `times` (ns), and one of the base."""
    processes = [
        MeasuredProcess(
            target="train",
            side="B",
            pair=pair,
            first=True,
            measurements={
                "train": Measurement(
                    samples_ns=(round(time),) * 4,
                    figures={"mfu": 0.4},
                    counters={"kernels": 12},
                )
            },
        )
        for pair, time in enumerate(times)
    ]
    return GateResult(
        tool_version="1",
        created_ns=created_ns,
        base=SideInfo(label="main"),
        head=SideInfo(label="the working tree", commit=commit, fingerprint=fingerprint),
        settings=RuleSettings(),
        judgements=(),
        processes=(msgspec.structs.replace(processes[0], side="A"), *processes),
    )
