"""No model raises, whatever a trace holds, and no cost is negative."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuprof.roofline.cost_models import cost_of, registry
from gpuprof.roofline.cost_models.call import Argument, OpCall, Scalar, Tensor, TensorList
from gpuprof.roofline.dtypes import DType, named

DTYPES: st.SearchStrategy[DType | None] = st.sampled_from(
    [named(name) for name in ("float32", "bfloat16", "int64", "bool", "complex64", "float8_e4m3fn")]
    + [None]
)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=5)))
    strides = draw(
        st.none() | st.lists(st.integers(0, 9), min_size=len(shape), max_size=len(shape))
    )
    return Tensor(shape, draw(DTYPES), None if strides is None else tuple(strides))


SCALARS = st.sampled_from(
    [
        *("", "0", "1", "2", "-1", "7", "0.5", "True", "False", "nan", "inf", "none", "1e-05"),
        *("[]", "[0]", "[1, 1]", "[2]", "[-1]", "[0, 0]", "[1, 1, 1]", "[5]", "[9, 9]"),
        *("[True, True, True]", "[False, True]", "[True", "[1, "),
    ]
).map(Scalar)
ARGUMENTS: st.SearchStrategy[Argument] = st.one_of(
    tensors(),
    tensors(),
    SCALARS,
    SCALARS,
    st.none(),
    st.lists(tensors(), max_size=3).map(lambda each: TensorList(tuple(each))),
)
KERNELS = st.lists(
    st.sampled_from(
        [
            "multi_tensor_apply_kernel<X, FusedAdamMathFunctor<float, 4>>",
            "CatArrayBatchedCopy<OpaqueType<2u>, unsigned int>",
            "ncclDevKernel_AllGather_RING_LL(x)",
            "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)",
        ]
    ),
    max_size=2,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(ARGUMENTS, max_size=18), KERNELS)
def test_no_model_raises_and_no_cost_is_negative(
    arguments: list[Argument], kernels: list[str]
) -> None:
    for name in sorted(registry._models):
        cost = cost_of(OpCall(name, tuple(arguments), kernels=tuple(kernels)))
        if cost is not None:
            counts = [part.count for part in cost.flops or ()]
            numbers = [*counts, cost.bytes_read, cost.bytes_written, cost.full_attention_flops]
            assert all(number is None or number >= 0 for number in numbers), (name, cost)
            said = cost.weight_bytes is not None or cost.key_value_bytes is not None
            assert said or not cost.matmul_flops(), f"{name} does not say what is a weight"
