"""The closed form of a step beside its count by operators."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from capture_builder import CaptureBuilder

from gpuprof.collectors import kineto
from gpuprof.collectors.manifest import ModelParameters, ParameterRole, ParameterShape
from gpuprof.roofline.analyze import analyze
from gpuprof.roofline.closed_form_figures import ClosedForm
from gpuprof.roofline.utilization.closed_form import with_attention

RECOMPUTE = Path(__file__).resolve().parents[3] / "shared" / "cases" / "recompute" / "trace.json"
TOKENS, INNER, OUTER = 64, 32, 16
WEIGHT = INNER * OUTER


def shape(
    role: ParameterRole, *sizes: int, count: int = 1, trainable: bool = True
) -> ParameterShape:
    return ParameterShape(role=role, shape=sizes, count=count, trainable=trainable)


def form_of(build: CaptureBuilder, *shapes: ParameterShape) -> ClosedForm | None:
    model = ModelParameters(name="Model", shapes=shapes)
    form = analyze(build.build(model=model)).closed_form
    if form is not None:
        explained = sum(difference.flops for difference in form.differences)
        assert form.flops + explained + form.unexplained == form.counted
    return form


def reasons(form: ClosedForm | None) -> dict[str, int]:
    assert form is not None
    return {difference.reason: difference.flops for difference in form.differences}


def forward(build: CaptureBuilder, start: int = 0, rows: int = TOKENS) -> None:
    """One product of `rows` tokens with the weight."""
    build.mm(start, start + 50, rows, INNER, OUTER)
    build.kernel(start + 10, start + 20, start + 40)


def gradients(build: CaptureBuilder, start: int, *, of_input: bool = True) -> None:
    """The weight's gradient and that of its input."""
    node = build.op("autograd::engine::evaluate_function: MmBackward0", start, start + 90)
    build.mm(start + 10, start + 20, INNER, TOKENS, OUTER, parent_id=node)
    build.kernel(start + 12, start + 13, start + 14)
    if of_input:
        build.mm(start + 30, start + 40, TOKENS, OUTER, INNER, parent_id=node)
        build.kernel(start + 32, start + 33, start + 34)


def test_a_forward_step_is_2n_a_token(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    forward(build)
    form = form_of(build, shape("matrix", OUTER, INNER))
    assert form is not None
    assert (form.formula, form.parameters, form.tokens) == ("2 N D", WEIGHT, TOKENS)
    assert (form.flops, form.counted) == (2 * WEIGHT * TOKENS, 2 * WEIGHT * TOKENS)
    assert (form.differences, form.unexplained) == ((), 0)


def test_a_product_of_a_library_is_one_with_a_weight_too(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    dims, types = f"[[{TOKENS}, {INNER}], [{OUTER}, {INNER}]]", '["c10::BFloat16", "c10::BFloat16"]'
    build.op("aiter::gemm_a16w16", 0, 50, dims=dims, types=types)
    build.kernel(10, 20, 40)
    form = form_of(build, shape("matrix", OUTER, INNER))
    assert form is not None
    assert (form.tokens, form.flops, form.counted) == (TOKENS, form.counted, 2 * WEIGHT * TOKENS)
    assert (form.differences, form.unexplained) == ((), 0)


def test_a_training_step_is_6n_a_token(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    forward(build)
    gradients(build, 100)
    form = form_of(build, shape("matrix", OUTER, INNER))
    assert form is not None
    assert (form.formula, form.flops) == ("6 N D", 6 * WEIGHT * TOKENS)
    assert (form.differences, form.unexplained) == ((), 0)


def test_embedding_and_norms_are_in_n_and_in_no_product(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    forward(build)
    found = reasons(
        form_of(build, shape("matrix", OUTER, INNER), shape("embedding", 100, 8), shape("other", 8))
    )
    assert found == {
        "embedding tables are looked up, not multiplied": -2 * 800 * TOKENS,
        "norms and biases are in no matrix product": -2 * 8 * TOKENS,
    }


def test_a_head_on_the_last_token_only_is_named(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    forward(build)
    build.mm(100, 150, 1, INNER, 48)
    build.kernel(110, 120, 140)
    found = reasons(form_of(build, shape("matrix", OUTER, INNER), shape("matrix", 48, INNER)))
    head = 2 * 48 * INNER
    assert found == {"48 x 32 in the forward pass: 1 of 64 tokens": head - head * TOKENS}


def test_a_first_layer_without_its_inputs_gradient_is_named(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    forward(build)
    gradients(build, 100, of_input=False)
    found = reasons(form_of(build, shape("matrix", OUTER, INNER)))
    assert found == {"gradients of 16 x 32: 50.0% of what the formula counts": -2 * WEIGHT * TOKENS}


def test_a_frozen_weight_costs_4n(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    forward(build)
    node = build.op("autograd::engine::evaluate_function: MmBackward0", 100, 190)
    build.mm(130, 140, TOKENS, OUTER, INNER, parent_id=node)
    build.kernel(132, 133, 134)
    form = form_of(build, shape("matrix", OUTER, INNER, trainable=False))
    assert form is not None
    assert (form.flops, form.differences) == (4 * WEIGHT * TOKENS, ())


def test_products_of_no_parameter_are_not_explained(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    forward(build)
    build.mm(100, 150, 2, 3, 5)
    build.kernel(110, 120, 140)
    form = form_of(build, shape("matrix", OUTER, INNER))
    assert form is not None
    assert (form.differences, form.unexplained) == ((), 2 * 2 * 3 * 5)


def test_declared_tokens_decide(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000, tokens=TOKENS // 2)
    forward(build)
    form = form_of(build, shape("matrix", OUTER, INNER))
    assert form is not None
    assert form.tokens == TOKENS // 2
    assert reasons(form) == {"16 x 32 in the forward pass: 64 of 32 tokens": WEIGHT * TOKENS}


def test_written_out_attention_is_attention(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    forward(build)
    types = '["c10::BFloat16", "c10::BFloat16"]'
    build.op("aten::bmm", 100, 150, dims="[[4, 8, 16], [4, 16, 8]]", types=types)
    build.kernel(110, 120, 140)
    form = form_of(build, shape("matrix", OUTER, INNER))
    assert form is not None
    assert (form.formula, form.attention_flops) == ("2 N D + 4 L H Q T D", 2 * 4 * 8 * 16 * 8)
    assert (form.differences, form.unexplained) == ((), 0)


def test_batched_products_with_experts_are_products_of_weights(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000, tokens=TOKENS)
    types = '["c10::BFloat16", "c10::BFloat16"]'
    rows = TOKENS // 4

    def batched(start: int, inner: tuple[int, int, int], **columns: Any) -> None:
        m, k, n = inner
        dims = f"[[4, {m}, {k}], [4, {k}, {n}]]"
        build.op("aten::bmm", start, start + 9, dims=dims, types=types, **columns)
        build.kernel(start + 1, start + 2, start + 3)

    batched(0, (rows, INNER, OUTER))
    node = build.op("autograd::engine::evaluate_function: BmmBackward0", 100, 190)
    batched(110, (INNER, rows, OUTER), parent_id=node)
    batched(130, (rows, OUTER, INNER), parent_id=node)
    form = form_of(build, shape("matrix", 4, INNER, OUTER))
    assert form is not None
    assert (form.formula, form.attention_flops, form.unexplained) == ("6 N D", 0, 0)
    # Each token meets one of four experts.
    assert reasons(form) == {
        "4 x 32 x 16 in the forward pass: 16 of 64 tokens": -3 * 2 * WEIGHT * TOKENS,
        "gradients of 4 x 32 x 16: 25.0% of what the formula counts": -3 * 4 * WEIGHT * TOKENS,
    }


def test_scores_of_the_size_of_a_weight_are_still_attention(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    forward(build)
    types = '["c10::BFloat16", "c10::BFloat16"]'
    dims = f"[[4, {OUTER}, {INNER}], [4, {INNER}, {OUTER}]]"
    build.op("aten::bmm", 100, 150, dims=dims, types=types)
    build.kernel(110, 120, 140)
    form = form_of(build, shape("matrix", OUTER, INNER))
    assert form is not None
    assert form.attention_flops == 2 * 4 * OUTER * INNER * OUTER
    assert form.differences == ()


def test_a_model_that_is_mostly_something_else_has_no_closed_form(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    forward(build)
    assert form_of(build, shape("matrix", 7, 9)) is None


def test_without_parameters_there_is_no_closed_form(build: CaptureBuilder) -> None:
    build.step("profiled", 0, 1000)
    forward(build)
    assert analyze(build.build()).closed_form is None


def test_attention_of_given_sizes_takes_the_place_of_that_which_ran() -> None:
    form = ClosedForm(
        formula="2 N D", parameters=5, tokens=3, flops=30, attention_flops=0, counted=30
    )
    changed = with_attention(form, 12)
    assert changed.formula == "2 N D + 4 L H Q T D"
    assert (changed.flops, changed.attention_flops, changed.counted) == (42, 12, 30)
    assert sum(d.flops for d in changed.differences) == -12
    assert with_attention(changed, 12) == changed


def test_checkpointing_executes_four_thirds_of_the_model() -> None:
    if not RECOMPUTE.exists():
        pytest.skip("the shared cases are not beside this checkout")
    capture = kineto.read(RECOMPUTE)
    (process,) = capture.processes
    model = ModelParameters(name="Model", shapes=(shape("matrix", OUTER, INNER),))
    capture = capture.with_processes((msgspec.structs.replace(process, model=model),))
    analysis = analyze(capture)
    form = analysis.closed_form
    assert form is not None
    # MFU's numerator: 3 products. The fourth, of the second forward, is in HFU's only.
    assert (form.counted, form.flops) == (3 * 65536, 6 * WEIGHT * TOKENS)
    assert analysis.step is not None
    assert analysis.step.total_flops == 4 * 65536
