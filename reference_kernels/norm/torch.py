"""torch's layer_norm and rms_norm.

FLOPs: those of the definition; an H100 executes 2.4 times as many for layer (Welford's update of
mean and variance) and 1.1 for rms. Bytes: compulsory, and one or two float32 statistics a row; an
H100 reads 1.12 (layer) and 1.21 times as much (rms), since a row is read for its statistics and
then again, in part from DRAM. Before torch 2.9 rms_norm was several operators.
"""

from torch.nn.functional import layer_norm, rms_norm

from gpuprof.reference_kernels.library_outputs import adopt, empty_outputs
from gpuprof.reference_kernels.norm.problem import EPSILON, NormProblem
from gpuprof.reference_kernels.suite import Prepared


def prepare(problem: NormProblem) -> Prepared:
    """See `gpuprof.reference_kernels.suite.Version.prepare`."""
    outputs = empty_outputs(1, problem.device)
    x, shape = problem.input, (problem.columns,)

    def call() -> None:
        if problem.bias is None:
            adopt(outputs, (rms_norm(x, shape, problem.weight, EPSILON),))
        else:
            adopt(outputs, (layer_norm(x, shape, problem.weight, problem.bias, EPSILON),))

    known = problem.work()
    statistics = 4 * problem.rows * (1 if problem.bias is None else 2)
    return Prepared(
        call,
        outputs,
        expected_bytes_read=known.bytes_read,
        expected_bytes_written=known.bytes_written + statistics,
    )
