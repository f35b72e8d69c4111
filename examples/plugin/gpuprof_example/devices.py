"""Peaks of a device that gpuprof's table does not have."""

from gpuprof.roofline.machine.devices import DeviceSpec, Peaks

X1 = DeviceSpec(
    name="Example X1",
    patterns=("example x1",),
    memory_gib=(32,),
    dram_gb_per_s=600,
    peaks=(
        Peaks(unit="tensor", tflops={"bf16": 80.0}),
        Peaks(unit="vector", tflops={"fp32": 10.0}),
    ),
    source="made up for this example",
)
