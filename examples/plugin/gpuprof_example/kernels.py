"""More versions for `gpuprof bench`. This is imported only there, as it needs torch."""

from gpuprof.reference_kernels.suite import Version

VERSIONS = (
    Version(
        family="softmax",
        name="in-parts",
        summary="256 rows at a time, so that intermediate arrays stay in a cache",
        dtypes=("bf16", "fp16", "fp32"),
        devices=("cuda", "cpu"),
        implementation="gpuprof_example.softmax_in_parts",
    ),
)
