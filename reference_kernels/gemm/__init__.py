"""GEMM: C = A B, from three nested loops to tensor cores fed by TMA; GEMV and grouped GEMM.

"Measured" in a version's docstring is one call under Nsight Compute on an H100 (SXM), with cold
caches, at 4096x4096x4096 unless said: FLOPs against those of its whole tiles, DRAM traffic against
what it expects; reasons are inferred. Counted writes fall short where outputs fit the L2: what is
still there when a kernel ends is written later, and counts to none.

The CUDA C++ ladder there, in TFLOP/s: naive 5.9, tiled 8.5, register-blocked 37 (cuBLAS in fp32:
51); tensor-core 451, wgmma 630 (cuBLAS in bf16: 777). On an H200 wgmma reaches 83 % of cuBLAS at
8192x8192x8192 and persistent 100 %.
"""

from gpuprof.reference_kernels.suite import DeviceType, Requirement, Version

_EVERYWHERE: tuple[DeviceType, ...] = ("cuda", "cpu")
_HALF = ("bf16", "fp16")
_TRITON_DTYPES = ("bf16", "fp16", "fp8", "int8", "tf32", "fp32")


def _version(
    name: str,
    summary: str,
    dtypes: tuple[str, ...],
    *,
    devices: tuple[DeviceType, ...] = ("cuda",),
    requires: tuple[Requirement, ...] = (),
    capability: tuple[int, int] = (0, 0),
) -> Version:
    return Version("gemm", name, summary, dtypes, devices, requires, capability)


VERSIONS: tuple[Version, ...] = (
    _version(
        "cublas",
        "torch.mm, torch._scaled_mm, torch._int_mm: the vendor's library",
        ("bf16", "fp16", "fp8", "int8", "tf32", "fp32", "fp64"),
        devices=_EVERYWHERE,
    ),
    _version(
        "cublaslt-epilogue",
        "bias and ReLU or GELU within cuBLASLt's kernel",
        _HALF,
        devices=_EVERYWHERE,
    ),
    _version(
        "cuda-naive",
        "CUDA C++, one thread an element of C, operands from the caches",
        ("fp32",),
        requires=("cuda-core",),
    ),
    _version(
        "cuda-tiled",
        "CUDA C++, tiles of A and B shared by a block",
        ("fp32",),
        requires=("cuda-core",),
    ),
    _version(
        "cuda-register-blocked",
        "CUDA C++, 8 x 8 elements of C a thread in registers",
        ("fp32",),
        requires=("cuda-core",),
    ),
    _version(
        "cuda-tensor-core",
        "CUDA C++, mma.sync fed by a cp.async pipeline",
        _HALF,
        requires=("cuda-core",),
        capability=(8, 0),
    ),
    _version(
        "cuda-wgmma",
        "CUDA C++, Hopper's wgmma reads the tiles from shared memory itself",
        _HALF,
        requires=("cuda-core",),
        capability=(9, 0),
    ),
    _version(
        "cuda-persistent",
        "CUDA C++, warpgroups with roles: one brings tiles by TMA, two multiply by wgmma",
        ("bf16", "fp16", "fp8"),
        requires=("cuda-core", "triton"),
        capability=(9, 0),
    ),
    _version(
        "triton-tiled",
        "Triton, one tile of C a program, tiles ordered for L2",
        _TRITON_DTYPES,
        requires=("triton",),
        capability=(8, 0),
    ),
    _version(
        "triton-persistent",
        "Triton, one program a multiprocessor, tiles loaded by TMA",
        ("bf16", "fp16", "fp8"),
        requires=("triton>=3.4",),
        capability=(9, 0),
    ),
    _version(
        "torch-gemv",
        "one row times B, as in decoding: torch.mv",
        ("bf16", "fp16", "fp32"),
        devices=_EVERYWHERE,
    ),
    _version(
        "triton-gemv",
        "one row times B in Triton, the sum split among programs",
        ("bf16", "fp16", "fp32"),
        requires=("triton",),
    ),
    _version(
        "triton-skinny",
        "at most 16 rows times B in Triton, on tensor cores, the sum split among programs",
        _HALF,
        requires=("triton",),
        capability=(8, 0),
    ),
    _version(
        "torch-grouped",
        "a product for each group of rows (mixture of experts): torch._grouped_mm",
        ("bf16",),
        devices=_EVERYWHERE,
    ),
    _version(
        "triton-grouped",
        "a product for each group of rows in one Triton kernel",
        _HALF,
        requires=("triton",),
        capability=(8, 0),
    ),
)
