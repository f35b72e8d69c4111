"""FBGEMM's operators on sparse features: figures by hand, and those of a recorded training run."""

from pathlib import Path

import pytest

from gpuprof.collectors import kineto
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.cost_models import cost_of
from gpuprof.roofline.cost_models.call import Argument, OpCall, Scalar, Tensor
from gpuprof.roofline.cost_models.cost import Cost, Flops
from gpuprof.roofline.dtypes import named

TRACE = (
    Path(__file__).resolve().parents[3]
    / "shared" / "data" / "public" / "kineto" / "hta_sampled_rank-0.json.gz"
)  # fmt: skip


def of(dtype: str, *shape: int) -> Tensor:
    return Tensor(shape, named(dtype))


def cost(name: str, *arguments: Argument, kernels: tuple[str, ...] = ()) -> Cost:
    result = cost_of(OpCall(name, arguments, kernels=kernels))
    assert result is not None
    return result


def figures(result: Cost) -> tuple[int | None, int | None, int | None]:
    operations = None if result.flops is None else sum(part.count for part in result.flops)
    return operations, result.bytes_read, result.bytes_written


FORWARD = (
    "void split_embedding_codegen_forward_{}_kernel<c10::Half, c10::Half, float, long, 1ul>(x)"
)
LOOKUP = "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function"


def lookup(
    total_width: str, pooling: str, sample_weights: Tensor | None = None
) -> tuple[Argument, ...]:
    """Three tables of 100 rows of 8, half precision; 2 bags a table; 10 indices."""
    return (
        of("float32", 0), of("float16", 2400), of("float16", 0), of("float16", 0, 0),
        of("int32", 3), of("int64", 3), of("int32", 4), Scalar(total_width), Scalar("8"),
        of("int64", 4), Scalar("9"), of("int64", 10), of("int64", 7), Scalar(pooling),
        sample_weights,
    )  # fmt: skip


def test_a_lookup_sums_the_rows_of_each_bag() -> None:
    result = cost(LOOKUP, *lookup("24", "0"), kernels=(FORWARD.format("unweighted"),))
    assert result.flops == (Flops("vector", "fp32", 10 * 8),)
    # Indices, offsets, ten rows of 16 bytes; six bags of eight floats, as the kernel's name tells.
    assert figures(result)[1:] == (10 * 8 + 7 * 8 + 10 * 16, 6 * 8 * 4)
    weighted = cost(LOOKUP, *lookup("24", "1", of("float32", 10)))
    assert figures(weighted) == (2 * 80, 80 + 56 + 40 + 160, None)


def test_a_lookup_without_pooling_writes_each_row() -> None:
    result = cost(LOOKUP, *lookup("24", "2"), kernels=(FORWARD.format("unweighted"),))
    assert figures(result) == (0, 80 + 56 + 160, 10 * 8 * 4)


@pytest.mark.parametrize(("total_width", "pooling"), [("20", "0"), ("", "0"), ("24", "")])
def test_a_lookup_in_tables_of_unknown_widths_has_no_cost(total_width: str, pooling: str) -> None:
    assert cost_of(OpCall(LOOKUP, lookup(total_width, pooling))) is None


def test_a_permutation_of_bags_moves_as_many_values_as_the_caller_says() -> None:
    arguments = of("int32", 3), of("int32", 4, 5), of("int64", 100), of("float32", 100)
    result = cost("fbgemm::permute_2D_sparse_data", *arguments, Scalar("60"))
    assert figures(result) == (0, 12 + 3 * 5 * 4 + 60 * (8 + 4), 3 * 5 * 4 + 60 * (8 + 4))
    # Five features out of four: one of them twice, its values read once.
    arguments = of("int32", 5), of("int32", 4, 5), of("int64", 100), of("float32", 100)
    result = cost("fbgemm::permute_2D_sparse_data", *arguments, Scalar("130"))
    assert figures(result) == (0, 20 + 80 + 100 * (8 + 4), 5 * 5 * 4 + 130 * (8 + 4))
    unknown = cost("fbgemm::permute_2D_sparse_data", *arguments, Scalar(""))
    assert figures(unknown) == (0, None, None)
    assert figures(cost("fbgemm::permute_sparse_features", *arguments)) == (0, None, None)


def test_a_permutation_of_pooled_embeddings_keeps_their_size() -> None:
    lists = of("int64", 5), of("int64", 4), of("int64", 5), of("int64", 4)
    result = cost("fbgemm::permute_pooled_embs_auto_grad", of("float32", 16, 48), *lists)
    # The inverse's second list is for the backward pass.
    assert figures(result) == (0, 16 * 48 * 4 + (5 + 4 + 5) * 8, 16 * 48 * 4)
    name = "torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&permute_gpu> >"
    assert figures(cost(name, of("float32", 16, 48))) == (0, 3072, 3072)
    name = "fbgemm::recat_embedding_grad_output_mixed_D_batch"
    result = cost(name, of("float32", 16, 48), of("int64", 2), of("int64", 2))
    assert figures(result) == (0, 3072 + 32, 3072)


def test_each_index_is_compared_with_two_bounds() -> None:
    arguments = of("int64", 3), of("int64", 10), of("int64", 7), Scalar("1"), of("int64", 1)
    result = cost("fbgemm::bounds_check_indices", *arguments)
    assert result.flops == (Flops("vector", "integer", 20),)
    assert figures(result)[1:] == (8 * (3 + 10 + 7), 0)


def test_a_complete_cumulative_sum_has_one_element_more_a_row() -> None:
    complete, exclusive = (
        f"fbgemm::asynchronous_{kind}_cumsum" for kind in ("complete", "exclusive")
    )
    assert figures(cost(complete, of("int32", 6))) == (6, 24, 28)
    assert figures(cost(complete, of("int32", 2, 3))) == (6, 24, 32)
    assert figures(cost(exclusive, of("int32", 6))) == (6, 24, 24)


def test_eight_bit_rows_carry_two_floats_and_padding() -> None:
    arguments = of("float32", 3, 10), Scalar("True")
    result = cost("fbgemm::FloatToFP8RowwiseQuantized", *arguments)
    assert figures(result) == (3 * 30, 120, 3 * (12 + 8))
    back = cost("fbgemm::FP8RowwiseQuantizedToFloat", of("uint8", 3, 20), Scalar("True"))
    assert figures(back) == (3 * 12, 60, 3 * 12 * 4)
    half = of("uint8", 3, 20), Scalar("True"), Scalar("1")
    assert figures(cost("fbgemm::FP8RowwiseQuantizedToFloat", *half)) == (36, 60, 72)
    unknown = of("uint8", 3, 20), Scalar("True"), Scalar("")
    assert figures(cost("fbgemm::FP8RowwiseQuantizedToFloat", *unknown)) == (36, 60, None)
    fused = "fbgemm::Fused8BitRowwiseQuantizedToFloat"
    assert figures(cost(fused, of("uint8", 3, 20))) == (72, 60, 144)
    assert cost_of(OpCall(fused, (of("uint8", 3, 7),))) is None


def test_a_recorded_run_of_recommendation_training_has_these_figures() -> None:
    if not TRACE.exists():
        pytest.skip("the public traces of ../shared are absent")
    seen = {
        (op.name, op.calls): (op.total_bytes, sum(part.count for part in op.flops or ()))
        for op in analyze(kineto.read(TRACE)).ops
    }
    rows, columns = 1_492_704, 256
    assert seen["fbgemm::FloatToFP8RowwiseQuantized", 2] == (
        2 * rows * (4 * columns + columns + 8), 2 * 3 * rows * columns
    )  # fmt: skip
    rows, columns = 1_638_400, 264
    assert seen["fbgemm::FP8RowwiseQuantizedToFloat", 2] == (
        2 * rows * (columns + 4 * 256), 2 * rows * 256
    )  # fmt: skip
    assert seen["fbgemm::FloatToHFP8Quantized", 2] == (2 * 419_430_400 * 5, 0)
    assert seen["fbgemm::HFP8QuantizedToFloat", 2] == (2 * 382_132_224 * 5, 0)
    pooled = 2 * 2 * 4 * 2048 * 186_588
    name = "fbgemm::permute_pooled_embs_auto_grad"
    assert seen[name, 2] == (pooled + 2 * 8 * (1391 + 1390 + 1391), 0)
    # Which elements its indices gather is not in the trace: no width of a table is.
    assert not [op for op, _ in seen if op == LOOKUP and seen[op, _][0] is not None]
