"""The registry: lookup, registration by a program, composites, and names that exist in torch."""

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from packaging.version import Version

from gpuprof.roofline.cost_models import (
    convolution,
    cost_model,
    cost_of,
    is_composite,
    is_modelled,
    is_view,
    registry,
)
from gpuprof.roofline.cost_models.attention_signatures import attention_signatures
from gpuprof.roofline.cost_models.call import OpCall, Tensor
from gpuprof.roofline.cost_models.cost import Cost, Flops
from gpuprof.roofline.dtypes import named


@pytest.fixture
def mylib() -> Iterator[str]:
    """The name of an operator that is forgotten after the test."""
    name = "mylib::fused_mlp"
    yield name
    registry._models.pop(name, None)
    registry._composites.discard(name)


def test_an_unregistered_operator_is_unknown_not_zero() -> None:
    matrix = Tensor((64, 64), named("bfloat16"))
    assert cost_of(OpCall("mylib::secret_gemm", (matrix, matrix))) is None
    assert not is_modelled("mylib::secret_gemm")


def test_a_program_registers_its_own_operator(mylib: str) -> None:
    @cost_model(mylib)
    def fused_mlp(call: OpCall) -> Cost | None:
        x = call.tensor(0)
        if x is None:
            return None
        return Cost(flops=(Flops("matmul", "bf16", x.elements),), bytes_read=1, bytes_written=2)

    assert is_modelled(mylib)
    assert not is_composite(mylib)
    result = cost_of(OpCall(mylib, (Tensor((3, 4), named("bfloat16")),)))
    assert result is not None
    assert (result.matmul_flops(), result.bytes_moved()) == (12, 3)
    assert cost_of(OpCall(mylib, ())) is None
    # The decorator gives the function back.
    assert fused_mlp(OpCall(mylib, ())) is None


def test_a_later_registration_replaces_an_earlier_one(mylib: str) -> None:
    unknown = Cost(flops=None, bytes_read=None, bytes_written=None)
    cost_model(mylib, composite=True)(lambda call: None)
    assert is_composite(mylib)
    cost_model(mylib)(lambda call: unknown)
    assert not is_composite(mylib)
    assert cost_of(OpCall(mylib, ())) == unknown


@pytest.mark.parametrize(
    "name",
    [
        "aten::linear",
        "aten::matmul",
        "aten::conv2d",
        "aten::convolution",
        "aten::_convolution",
        "aten::scaled_dot_product_attention",
        "aten::layer_norm",
        "aten::cross_entropy_loss",
        "aten::softmax",
        "aten::clone",
        "aten::reshape",
    ],
)
def test_operators_that_pass_their_work_on_are_composites(name: str) -> None:
    assert is_composite(name)


@pytest.mark.parametrize("name", ["aten::mm", "aten::copy_", "aten::native_layer_norm"])
def test_operators_that_do_the_work_are_none(name: str) -> None:
    assert is_modelled(name)
    assert not is_composite(name)
    assert not is_view(name)


def test_views_are_modelled_and_told_apart() -> None:
    assert is_view("aten::view")
    assert is_modelled("aten::view")
    assert not is_view("aten::clone")


def test_importing_the_models_needs_no_torch() -> None:
    code = "import sys, gpuprof.roofline.cost_models; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Operators that came after the oldest torch that is supported.
NEWER = {
    "aten::_cudnn_attention_backward",
    "aten::_cudnn_attention_forward",
    "aten::_fused_rms_norm",
    "aten::_fused_rms_norm_backward",
    "aten::_grouped_mm",
    "aten::_scaled_grouped_mm",
    "aten::_scaled_grouped_mm_v2",
    "aten::_scaled_mm_v2",
    "aten::_weight_int4pack_mm_with_scales_and_zeros",
}
# The release whose operators are all known here.
IS_RECENT = Version(torch.__version__) >= Version("2.13")
# aten::convolution_backward took their place in torch 1.11; older traces hold them.
GONE = {
    f"aten::{library}_convolution_backward{gradient}"
    for library in ("cudnn", "miopen", "miopen_depthwise")
    for gradient in ("", "_input", "_weight")
}


def test_each_registered_aten_operator_exists_in_torch() -> None:
    existing = {schema.name for schema in torch._C._jit_get_all_schemas()}
    names = {*registry._models, *registry._composites}
    missing = {
        name
        for name in names
        if name.startswith("aten::")
        and name not in existing
        # In-place forms are registered for the whole table, whether torch has them or not.
        and name.removesuffix("_") not in names - {name}
    }
    assert missing - GONE <= (set() if IS_RECENT else NEWER)
    # Each row is one that some torch lacks.
    assert names >= NEWER
    assert missing >= GONE


def argument_names(op: str) -> list[str]:
    schemas = [s for s in torch._C._jit_get_all_schemas() if s.name == op]
    if not schemas and not IS_RECENT and op in NEWER:
        pytest.skip("this torch has not all operators")
    plain = [s for s in schemas if s.overload_name in ("", "output_mask")]
    return [argument.name for argument in plain[0].arguments]


CONVOLUTIONS = {**convolution._FORWARD, **convolution._COMPOSITE_FORWARD}


@pytest.mark.parametrize("op", CONVOLUTIONS)
def test_positions_of_convolution_arguments_are_those_of_torchs_schemas(op: str) -> None:
    where, names = CONVOLUTIONS[op], argument_names(op)
    fields = ("stride", "padding", "dilation", "bias", "groups", "output_padding")
    for field in fields:
        position = getattr(where, field)
        if position is not None:
            assert names[position] == field
    if not isinstance(where.transposed, bool):
        assert names[where.transposed] == "transposed"


ATTENTIONS = {
    op: signature
    for signature in attention_signatures()
    for op in signature.names
    if op.startswith("aten::")
}


@pytest.mark.parametrize("op", ATTENTIONS)
def test_positions_of_attention_arguments_are_those_of_torchs_schemas(op: str) -> None:
    where, names = ATTENTIONS[op], argument_names(op)
    assert names[where.query : where.query + 3] == ["query", "key", "value"]
    expected = {
        "causal": {"is_causal"},
        "mask_type": {"custom_mask_type"},
        "bias": {"attn_bias", "attn_mask", "bias"},
        "starts": {"cum_seq_q", "cu_seqlens_q"},
        "maxima": {"max_q", "max_seqlen_q"},
        "window": {"window_size_left"},
        "pages": {"block_table"},
    }
    for field, allowed in expected.items():
        position = getattr(where, field)
        # Newer releases put arguments at the end.
        if position is not None and (IS_RECENT or position < len(names)):
            assert names[position] in allowed
    if not isinstance(where.log_sum_exp, bool):
        assert names[where.log_sum_exp] == "compute_log_sumexp"
    if where.saved is not None:
        assert [names[position] for position in where.saved] == ["out", "logsumexp"]
    hiding = {"seqused_k", "seqlen_k", "window_size"}
    hidden = [place for place in where.unknown_if_present if IS_RECENT or place < len(names)]
    assert {names[position] for position in hidden} <= hiding


def test_a_negative_figure_is_no_answer(mylib: str) -> None:
    wrong = Cost(flops=(Flops("vector", "fp32", -1),), bytes_read=0, bytes_written=0)
    cost_model(mylib)(lambda call: wrong)
    assert cost_of(OpCall(mylib, ())) is None


@pytest.fixture
def patterns() -> Iterator[None]:
    """All that starts with mylib:: is forgotten after the test."""
    yield
    for name in [name for name in registry._models if name.startswith("mylib::")]:
        del registry._models[name]
    registry._patterns[:] = [name for name in registry._patterns if not name.startswith("mylib")]
    registry._composites.difference_update({"mylib::*", "mylib::gemm*"})


def costing(size: int) -> Callable[[OpCall], Cost]:
    return lambda call: Cost(flops=(), bytes_read=size, bytes_written=0)


def size_of(name: str) -> int | None:
    result = cost_of(OpCall(name, ()))
    return None if result is None else result.bytes_read


def test_an_exact_name_goes_before_patterns_and_later_patterns_before_earlier(
    patterns: None,
) -> None:
    cost_model("mylib::gemm_exact")(costing(1))
    cost_model("mylib::*")(costing(2))
    cost_model("mylib::gemm*")(costing(3))
    names = ("mylib::gemm_exact", "mylib::gemm_0", "mylib::norm", "MYLIB::norm")
    assert [size_of(name) for name in names] == [1, 3, 2, None]
    cost_model("mylib::*")(costing(4))
    assert [size_of(name) for name in names] == [1, 4, 4, None]


def test_a_pattern_of_composites(patterns: None) -> None:
    cost_model("mylib::gemm*", composite=True)(costing(1))
    assert is_composite("mylib::gemm_0")
    assert not is_composite("mylib::norm")
