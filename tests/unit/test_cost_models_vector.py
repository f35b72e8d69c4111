"""Everything but products: operations by the documented counts, bytes by hand."""

from pathlib import Path

import pytest

from gpuprof.collectors import kineto
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.cost_models import cost_of
from gpuprof.roofline.cost_models.call import Argument, OpCall, Scalar, Tensor, TensorList
from gpuprof.roofline.cost_models.cost import Cost, Flops
from gpuprof.roofline.dtypes import named

OLD_TRACE = (
    Path(__file__).resolve().parents[3]
    / "shared" / "data" / "public" / "kineto" / "hta_sampled_rank-0.json.gz"
)  # fmt: skip


def tensor(*shape: int, dtype: str = "float32", strides: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(shape, named(dtype), strides)


def values(*texts: str) -> tuple[Scalar, ...]:
    return tuple(map(Scalar, texts))


def cost(
    name: str, *arguments: Argument, kernels: tuple[str, ...] = (), collective: str = ""
) -> Cost:
    result = cost_of(OpCall(name, arguments, kernels=kernels, collective=collective))
    assert result is not None
    return result


def test_a_broadcast_operand_is_read_once() -> None:
    result = cost("aten::add", tensor(1024, 1024), tensor(1024), Scalar("1"))
    assert result.flops == (Flops("vector", "fp32", 1048576),)
    assert result.bytes_read == 4 * (1048576 + 1024)
    assert result.bytes_moved() == 8392704


def test_a_number_recorded_as_a_float64_tensor_does_not_promote() -> None:
    result = cost("aten::mul", tensor(1024, 1024), tensor(dtype="float64"))
    assert result.bytes_written == 4 * 1048576
    assert result.bytes_moved() == 8388608 + 8


def test_an_expanded_gradient_is_read_once() -> None:
    result = cost("aten::div", tensor(8, 64, strides=(0, 0)), Scalar("512"))
    assert (result.bytes_read, result.bytes_written) == (4, 4 * 512)


def test_an_in_place_operator_reads_and_writes_its_first_operand() -> None:
    result = cost("aten::add_", tensor(8, 64, dtype="bfloat16"), tensor(8, 64))
    assert (result.bytes_read, result.bytes_written) == (512 * 2 + 512 * 4, 512 * 2)


def test_the_out_form_writes_what_its_output_is() -> None:
    result = cost("aten::add", tensor(64), tensor(64), Scalar("1"), tensor(64, dtype="float64"))
    assert result.bytes_written == 512


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [
        ("bfloat16", "fp32"),
        ("float16", "fp32"),
        ("float32", "fp32"),
        ("float64", "fp64"),
        ("int64", "integer"),
        ("int8", "integer"),
    ],
)
def test_vector_operations_count_where_torch_computes_them(dtype: str, precision: str) -> None:
    result = cost("aten::mul", tensor(64, dtype=dtype), tensor(64, dtype=dtype))
    assert result.flops == (Flops("vector", precision, 64),)


def test_selecting_counts_no_operations() -> None:
    where = cost("aten::where", tensor(64, dtype="bool"), tensor(64), tensor(64))
    assert where.flops == ()
    assert where.bytes_moved() == 64 + 3 * 256


@pytest.mark.parametrize(
    ("name", "arguments", "operations"),
    [
        ("aten::_softmax", (tensor(6, 8), *values("1", "False")), 5 * 48),
        ("aten::_softmax_backward_data", (tensor(6, 8),) * 2, 4 * 48),
        ("aten::silu", (tensor(6, 8),), 4 * 48),
        ("aten::silu_backward", (tensor(6, 8),) * 2, 9 * 48),
        ("aten::native_layer_norm", (tensor(6, 8), Scalar("[8]"), tensor(8), tensor(8)), 8 * 48),
        ("aten::native_layer_norm", (tensor(6, 8), Scalar("[8]")), 6 * 48),
        # torch before 2.1 records no lists of integers: the weight has that shape.
        ("aten::native_layer_norm", (tensor(6, 8), None, tensor(8), tensor(8)), 8 * 48),
        ("aten::_fused_rms_norm", (tensor(6, 8), Scalar("[8]"), tensor(8)), 4 * 48),
        (
            "aten::_fused_rms_norm_backward",
            (
                tensor(6, 8), tensor(6, 8), Scalar("[8]"), tensor(6, 1), tensor(8),
                Scalar("[True, True]"),
            ),
            (7 + 2) * 48,
        ),
        ("aten::sum", (tensor(6, 8), None), 48),
        ("aten::linalg_vector_norm", (tensor(6, 8), *values("2"), None, *values("False")), 96),
        ("aten::mse_loss", (tensor(6, 8), tensor(6, 8), Scalar("1")), 3 * 48),
        ("aten::nll_loss_forward", (
            tensor(6, 8), tensor(6, dtype="int64"), None, *values("1", "-100"),
        ), 12),
    ],
)  # fmt: skip
def test_operations_follow_the_documented_counts(
    name: str, arguments: tuple[Argument, ...], operations: int
) -> None:
    assert cost(name, *arguments).flops == (Flops("vector", "fp32", operations),)


def test_batch_norm_reads_running_statistics_and_writes_them_only_in_training() -> None:
    arguments = (tensor(4, 3, 10), tensor(3), tensor(3), tensor(3), tensor(3))
    training = cost("aten::native_batch_norm", *arguments, Scalar("True"))
    evaluating = cost("aten::native_batch_norm", *arguments, Scalar("False"))
    assert training.bytes_read == evaluating.bytes_read == 4 * (120 + 12)
    assert training.bytes_written == 4 * (120 + 6 + 6)
    assert evaluating.bytes_written == 4 * 120
    assert (training.flops, evaluating.flops) == (
        (Flops("vector", "fp32", 8 * 120),),
        (Flops("vector", "fp32", 4 * 120),),
    )


def test_vendor_batch_norms_take_the_input_before_the_gradient() -> None:
    half = tensor(4, 3, 10, dtype="float16")
    result = cost(
        "aten::cudnn_batch_norm_backward",
        half, half, tensor(3), None, None, tensor(3), tensor(3), Scalar("1e-05"),
    )  # fmt: skip
    assert result.bytes_read == 2 * 2 * 120 + 3 * 12
    assert result.bytes_written == 2 * 120 + 2 * 12


def test_a_gather_reads_rows_and_never_the_whole_table() -> None:
    indices = tensor(2, 3, dtype="int64")
    small = cost("aten::embedding", tensor(50000, 16), indices)
    assert small.bytes_read == 8 * 6 + 4 * 6 * 16
    assert small.bytes_written == 4 * 6 * 16
    # Six indices into four rows can touch no more than the four.
    assert cost("aten::embedding", tensor(4, 16), indices).bytes_read == 8 * 6 + 4 * 4 * 16


def test_scatter_add_reads_and_writes_the_rows_it_touches() -> None:
    indices = tensor(5, 4, dtype="int64")
    result = cost("aten::scatter_add_", tensor(100, 4), Scalar("0"), indices, tensor(5, 4))
    assert result.flops == (Flops("vector", "fp32", 20),)
    assert (result.bytes_read, result.bytes_written) == (8 * 20 + 4 * 20 + 4 * 20, 4 * 20)


def test_an_embedding_bag_sums_its_rows() -> None:
    indices, offsets = tensor(10, dtype="int64"), tensor(3, dtype="int64")
    result = cost(
        "aten::_embedding_bag",
        tensor(1000, 16), indices, offsets, *values("False", "0", "False"), None,
        *values("False", "-1"),
    )  # fmt: skip
    assert result.flops == (Flops("vector", "fp32", 160),)
    assert result.bytes_read == 8 * 13 + 4 * 160
    assert result.bytes_written == 4 * 3 * 16 + 8 * (10 + 3)


def test_indexing_without_recorded_indices_has_no_bytes() -> None:
    result = cost("aten::index", tensor(9, 5), None)
    assert result.flops == ()
    assert result.bytes_moved() is None


def test_a_copy_between_dtypes_reads_one_and_writes_the_other() -> None:
    result = cost("aten::copy_", tensor(8, 4, dtype="bfloat16"), tensor(8, 4), Scalar("False"))
    assert (result.flops, result.bytes_read, result.bytes_written) == ((), 128, 64)


@pytest.mark.parametrize("name", ["aten::view", "aten::t", "aten::expand", "aten::empty"])
def test_views_cost_nothing(name: str) -> None:
    result = cost(name, tensor(64, 64))
    assert (result.flops, result.bytes_moved()) == ((), 0)


CAT_KERNEL = (
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy_vectorized<at::native::"
    "(anonymous namespace)::OpaqueType<2u>, unsigned int, 3, 128, 1, 16, 8>(char*)"
)


def test_cat_has_bytes_only_where_its_kernel_tells_the_elements_size() -> None:
    tensors = TensorList((Tensor((2, 8), None), Tensor((3, 8), None, (0, 1))))
    assert cost("aten::cat", tensors, Scalar("0")).bytes_moved() is None
    told = cost("aten::cat", tensors, Scalar("0"), kernels=(CAT_KERNEL,))
    assert (told.bytes_read, told.bytes_written) == (2 * (16 + 8), 2 * 40)


def optimizer_kernel(functor: str) -> str:
    return (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::"
        f"(anonymous namespace)::TensorListMetadata<2>, at::native::{functor}>(int)"
    )


def tensor_list(*lengths: int) -> TensorList:
    return TensorList(tuple(Tensor((length,), None) for length in lengths))


def test_foreach_counts_the_elements_of_its_lists() -> None:
    lists = tensor_list(1024, 2048), tensor_list(1024, 2048)
    result = cost("aten::_foreach_add_", *lists, Scalar("1"))
    assert result.flops == (Flops("vector", "fp32", 3072),)
    assert result.bytes_moved() is None
    assert any("no dtype" in text for text in result.assumptions)


def test_foreach_has_bytes_where_its_kernel_names_the_element() -> None:
    lists = tensor_list(1024, 2048), tensor_list(1024, 2048)
    kernel = optimizer_kernel("BinaryOpListAlphaFunctor<c10::BFloat16, 2, 2, 0>, std::plus<float>")
    result = cost("aten::_foreach_add_", *lists, Scalar("1"), kernels=(kernel, kernel))
    assert (result.bytes_read, result.bytes_written) == (2 * 2 * 3072, 2 * 3072)
    other = optimizer_kernel("BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float>")
    disagreeing = cost("aten::_foreach_add_", *lists, Scalar("1"), kernels=(kernel, other))
    assert disagreeing.bytes_moved() is None


def test_fused_adamw_moves_28_bytes_a_float32_parameter() -> None:
    lists = tensor_list(1000), tensor_list(1000), tensor_list(1000), tensor_list(1000)
    kernel = optimizer_kernel("FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false>")
    result = cost(
        "aten::_fused_adamw_",
        *lists, TensorList(()), tensor_list(1),
        *values("0.001", "0.9", "0.999", "0.01", "1e-08", "False", "False"), None, None,
        kernels=(kernel,),
    )  # fmt: skip
    assert result.flops == (Flops("vector", "fp32", 15 * 1000),)
    assert result.bytes_moved() == 28 * 1000


@pytest.mark.parametrize(
    ("momentum", "first", "moved"), [("0", "False", 3), ("0.9", "False", 5), ("0.9", "True", 4)]
)
def test_fused_sgd_reads_its_momentum_after_the_first_step(
    momentum: str, first: str, moved: int
) -> None:
    kernel = optimizer_kernel("FusedSgdMathFunctor<double, 3, false>")
    result = cost(
        "aten::_fused_sgd_",
        tensor_list(10), tensor_list(10), tensor_list(10),
        *values("0", momentum, "0.1", "0", "False", "False", first), None, None,
        kernels=(kernel,),
    )  # fmt: skip
    assert result.bytes_moved() == moved * 80


def test_lists_that_the_trace_left_out_have_no_cost() -> None:
    empty = TensorList(())
    assert cost_of(OpCall("aten::_foreach_add_", (empty, Scalar("1")))) is None
    assert cost_of(OpCall("aten::_fused_adamw_", (empty,) * 6)) is None


@pytest.mark.parametrize(
    ("kernel", "collective", "read", "written"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x<4096ul>)", "allreduce", 2000, 2000),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)", "allgather", None, None),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_SIMPLE(x)", "reduce_scatter", 4000, 1000),
        ("ncclDevKernel_Generic(x)", "", None, None),
    ],
)
def test_a_collective_moves_its_own_buffers(
    kernel: str, collective: str, read: int | None, written: int | None
) -> None:
    result = cost(
        "record_param_comms",
        tensor_list(1000), None, None, *values("0"), None, *values("[]", "[]", "0", "1", "4"),
        kernels=(kernel,),
        collective=collective,
    )  # fmt: skip
    assert (result.flops, result.bytes_read, result.bytes_written) == ((), read, written)


def test_a_collective_without_record_param_comms_has_its_tensors() -> None:
    """(output, input, group): torch 1.13 launches these under the operator itself."""
    four, one = tensor(4000, dtype="int8"), tensor(1000, dtype="int8")
    gathered = cost("c10d::_allgather_base_", four, one, None)
    assert (gathered.flops, gathered.bytes_read, gathered.bytes_written) == ((), 1000, 4000)
    scattered = cost("c10d::_reduce_scatter_base_", one, four, None)
    assert (scattered.bytes_read, scattered.bytes_written) == (4000, 1000)


@pytest.mark.parametrize(
    ("name", "read", "written"),
    [
        ("c10d::allreduce_", 4000, 4000),
        ("c10d::broadcast_", 4000, 4000),
        ("c10d::send", 4000, 0),
        ("c10d::recv_", 0, 4000),
        ("c10d::allgather_", None, None),
    ],
)
def test_a_collective_of_gloo_does_no_operations(
    name: str, read: int | None, written: int | None
) -> None:
    """gloo writes no record_param_comms: DistributedDataParallel on CPUs."""
    result = cost(name, TensorList((tensor(1000, dtype="float32"),)), None, None)
    assert (result.flops, result.bytes_read, result.bytes_written) == ((), read, written)


@pytest.mark.skipif(not OLD_TRACE.exists(), reason="the public traces of ../shared are absent")
def test_a_recorded_all_gather_of_torch_1_13_has_its_message() -> None:
    ops = analyze(kineto.read(OLD_TRACE)).ops
    (gathered,) = (op for op in ops if op.name == "c10d::_allgather_base_")
    assert gathered.transfer is not None
    assert (gathered.calls, gathered.transfer.message_bytes) == (2, 1_073_741_824)


GATHER = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long)"
OTHER = "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<x> >(int)"


def indexed(*shape: int, grid: tuple[int, int], block: int, kernel: str = GATHER) -> Cost:
    call = OpCall(
        "aten::index",
        (tensor(*shape, dtype="bfloat16"), None),
        kernels=(kernel,),
        grid=(*grid, 1),
        block=(block, 1, 1),
    )
    result = cost_of(call)
    assert result is not None
    return result


def test_the_grid_of_a_row_gather_tells_the_number_of_indices() -> None:
    # Rows of 5,760 bytes: two blocks of 256 threads that move 16 bytes each.
    result = indexed(1000, 2880, grid=(32, 2), block=256)
    assert (result.bytes_read, result.bytes_written) == (32 * 5760 + 32 * 8, 32 * 5760)
    # An axis of one row before the indexed one; more indices than rows.
    batch = indexed(1, 10, 64, grid=(32, 1), block=32)
    assert (batch.bytes_read, batch.bytes_written) == (10 * 128 + 32 * 8, 32 * 128)


def test_a_grid_that_does_not_fit_the_rows_tells_nothing() -> None:
    for result in (
        indexed(1000, 2880, grid=(32, 1), block=256),
        indexed(1000, 64, grid=(32, 1), block=256),
        indexed(1000, 2880, grid=(32, 2), block=256, kernel=OTHER),
    ):
        assert (result.flops, result.bytes_moved()) == ((), None)


@pytest.mark.parametrize(
    ("collective", "read", "written"),
    [
        ("allreduce", 2000, 2000),
        ("allreduce_coalesced", 2000, 2000),
        ("_allgather_base", 2000, 8000),
        ("_reduce_scatter_base", 2000, 500),
        ("all_to_all", 2000, 2000),
        ("send", 2000, 0),
        ("recv", 0, 2000),
        ("all_to_allv", 2000, None),
    ],
)
def test_metadata_tells_a_collective_that_its_kernel_s_name_does_not(
    collective: str, read: int | None, written: int | None
) -> None:
    call = OpCall(
        "record_param_comms",
        (tensor_list(1000), None, None, *values("0"), None, *values("[]", "[]", "0", "1", "4")),
        kernels=("ncclDevKernel_Generic(x)",),
        collective=collective,
        collective_dtype="BFloat16",
    )
    result = cost_of(call)
    assert result is not None
    assert (result.flops, result.bytes_read, result.bytes_written) == ((), read, written)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("aten::add", (tensor(2, 3), tensor(4))),
        ("aten::add", (Scalar("1"), Scalar("2"))),
        ("aten::sum", (Scalar(""),)),
        ("aten::copy_", (tensor(2),)),
        ("aten::native_layer_norm", (tensor(6, 8), Scalar("[7]"))),
        ("aten::native_layer_norm", (tensor(6, 8), Scalar(""))),
        ("aten::native_batch_norm", (tensor(4, 3),)),
        ("aten::index_select", (tensor(4, 3), Scalar("5"), tensor(2, dtype="int64"))),
        ("aten::max_pool2d_with_indices", (tensor(1, 2, 8, 8), Scalar(""), Scalar("[]"))),
        ("aten::topk", (tensor(4), Scalar(""))),
    ],
)
def test_arguments_that_are_not_understood_have_no_cost(
    name: str, arguments: tuple[Argument, ...]
) -> None:
    assert cost_of(OpCall(name, arguments)) is None
