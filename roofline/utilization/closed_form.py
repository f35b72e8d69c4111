"""The closed form of a step's model FLOPs, and why the count by operators differs from it.

Every parameter does one multiply-add a token in the forward pass and two in the backward pass: 2 N,
and 6 N in training (Kaplan et al. 2020, section 2.1); attention adds 4 L H Q T a token, and 12 in
training (Chowdhery et al. 2022, appendix B). A frozen parameter has no gradient of its own: 4 N.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import polars as pl

from gpuprof.collectors.manifest import ModelParameters, ParameterShape
from gpuprof.roofline.closed_form_figures import ClosedForm, FlopDifference
from gpuprof.roofline.cost_models.cost import Cost, MatrixProduct
from gpuprof.roofline.work.call_groups import (
    CallGroup,
    call_groups,
    full_matmul_flops,
    full_recomputed_flops,
    has_backward,
)
from gpuprof.roofline.work.work import Work

# Numbers of tokens that differ by less are one: a mean over steps of different lengths.
_SAME = 1.001
# (experts, inputs, outputs)
_EXPERT_AXES = 3
# The two last sizes of a weight, smaller one first.
_Pair = tuple[int, int]


@dataclass
class _Products:
    """Matmul FLOPs of the profiled steps by what they multiply; nothing recomputed."""

    # By the pair of the weight that they use; None where no parameter of the model has it.
    forward: Counter[_Pair | None] = field(default_factory=Counter)
    backward: Counter[_Pair | None] = field(default_factory=Counter)
    attention_forward: int = 0
    attention_backward: int = 0
    convolution: int = 0
    # How many rows the forward pass's products with each weight take.
    rows: dict[_Pair, set[int]] = field(default_factory=dict)
    # Forward FLOPs with weights of no known pair, by how many rows a call takes.
    rows_of_the_rest: Counter[int] = field(default_factory=Counter)
    calls_of_the_rest: Counter[int] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return (
            self.forward.total()
            + self.backward.total()
            + self.attention_forward
            + self.attention_backward
            + self.convolution
        )


def closed_form(
    work: Work, parameters: ModelParameters | None, *, tokens: int | None = None
) -> ClosedForm | None:
    """Model FLOPs of one step by formula, and the differences to what the operators did.

    `tokens` of one step; without them those that most forward products met, in all passes of
    the step. Attention is that which ran, its backward pass at twice the forward. None without
    parameters, where the products leave the tokens open, and where products of the model's
    matrices, and attention, are not most of the step: it does not apply to convolutions, say.
    """
    if parameters is None:
        return None
    training = has_backward(work)
    products = _products(work, parameters.shapes)
    if tokens is None:
        tokens = _tokens_met(products, parameters.shapes, work.steps)
    if not tokens or 2 * products.convolution > products.total:
        return None
    steps = work.steps
    attention = round(products.attention_forward * (3 if training else 1) / steps)
    flops = attention + sum(
        _per_token(shape, training=training) * tokens for shape in parameters.shapes
    )
    lumped = [s for s in parameters.shapes if s.role == "matrix" and _pair_of(s) is None]
    matched = products.total - products.forward[None] - products.backward[None]
    if not lumped and 2 * matched < products.total:
        return None
    differences = [
        *_role_differences(parameters.shapes, products, tokens, steps, training=training),
        *_matrix_differences(parameters.shapes, products, tokens, steps, training=training),
    ]
    if training:
        backward = round((products.attention_backward - 2 * products.attention_forward) / steps)
        differences.append(FlopDifference("attention backward is not twice forward", backward))
    found = tuple(d for d in differences if d.flops)
    counted = round(products.total / steps)
    return ClosedForm(
        formula=_formula(training=training, attention=bool(attention)),
        parameters=parameter_count(parameters),
        tokens=tokens,
        flops=flops,
        attention_flops=attention,
        counted=counted,
        differences=found,
        unexplained=counted - flops - sum(d.flops for d in found),
    )


def parameter_count(parameters: ModelParameters) -> int:
    """The number of all parameters."""
    return sum(map(_elements, parameters.shapes))


def _tokens_met(products: _Products, shapes: Sequence[ParameterShape], steps: int) -> int | None:
    """Tokens of one step, which the products with most matrices met; None where that is open.

    It is open where others met more, or met another number in calls of the same size: one of the
    two then is a matrix that a token meets several times (shared layers) or not always (experts).
    """
    elements: Counter[_Pair] = Counter()
    for shape in shapes:
        pair = _pair_of(shape)
        if pair is not None:
            elements[pair] += _elements(shape)
    met = {
        pair: flops / (2 * elements[pair] * steps)
        for pair, flops in products.forward.items()
        if pair is not None
    }
    if not met:
        return _tokens_of_lumped(products, shapes, steps)
    most = max(met, key=lambda pair: products.forward[pair])
    tokens = round(met[most])
    for pair, here in met.items():
        same_calls = not products.rows[pair].isdisjoint(products.rows[most])
        if here > tokens * _SAME or (same_calls and here * _SAME < tokens):
            return None
    return tokens


def _tokens_of_lumped(
    products: _Products, shapes: Sequence[ParameterShape], steps: int
) -> int | None:
    """Tokens of one step where the model's matrices are known by their number alone.

    The rows of most products, times the passes of a step that the forward FLOPs allow. None where
    there are fewer products than passes: the model has far more parameters than that.
    """
    lumped = sum(_elements(s) for s in shapes if s.role == "matrix" and _pair_of(s) is None)
    rows = max(
        products.rows_of_the_rest, key=lambda each: products.rows_of_the_rest[each], default=0
    )
    if not lumped or not rows:
        return None
    passes = max(1, round(products.forward[None] / (2 * lumped * rows * steps)))
    return rows * passes if passes * steps <= products.calls_of_the_rest[rows] else None


def declared_tokens(steps: pl.DataFrame) -> int | None:
    """Tokens of one step as the program declared them (table steps); None where it did not."""
    for phase in ("profiled", "timed"):
        tokens = steps.filter(pl.col("phase") == phase)["tokens"].drop_nulls()
        if len(tokens):
            return round(float(np.median(tokens.to_numpy())))
    return None


def with_attention(form: ClosedForm, attention_flops: int) -> ClosedForm:
    """`form` with attention of given sizes in place of that which ran."""
    ran = form.attention_flops - attention_flops
    difference = (FlopDifference("attention that ran, compared with that of the sizes given", ran),)
    return msgspec.structs.replace(
        form,
        formula=_formula(training=form.formula.startswith("6"), attention=True),
        flops=form.flops - ran,
        attention_flops=attention_flops,
        differences=form.differences + (difference if ran else ()),
    )


def _formula(*, training: bool, attention: bool) -> str:
    weights, scores = ("6 N D", "12 L H Q T D") if training else ("2 N D", "4 L H Q T D")
    return f"{weights} + {scores}" if attention else weights


def _per_token(shape: ParameterShape, *, training: bool) -> int:
    return _elements(shape) * (2 if not training else 6 if shape.trainable else 4)


def _elements(shape: ParameterShape) -> int:
    return shape.count * math.prod(shape.shape)


def _pair_of(shape: ParameterShape) -> _Pair | None:
    return None if shape.role != "matrix" else _pair(shape.shape)


def _pair(sizes: tuple[int, ...]) -> _Pair | None:
    if len(sizes) < 2:
        return None
    small, large = sorted(sizes[-2:])
    return small, large


def _role_differences(
    shapes: Iterable[ParameterShape],
    products: _Products,
    tokens: int,
    steps: int,
    *,
    training: bool,
) -> list[FlopDifference]:
    """What the formula counts for parameters that are in no matrix product."""
    counted: Counter[str] = Counter()
    for shape in shapes:
        counted[shape.role] += _per_token(shape, training=training) * tokens
    return [
        FlopDifference("embedding tables are looked up, not multiplied", -counted["embedding"]),
        FlopDifference("norms and biases are in no matrix product", -counted["other"]),
        FlopDifference(
            "convolutions use their weights more than once, or not for each token",
            round(products.convolution / steps) - counted["convolution"],
        ),
    ]


def _matrix_differences(
    shapes: Iterable[ParameterShape],
    products: _Products,
    tokens: int,
    steps: int,
    *,
    training: bool,
) -> list[FlopDifference]:
    """Matrices that met more or fewer tokens than the step has, or have fewer gradients."""
    forward: Counter[_Pair] = Counter()
    backward: Counter[_Pair] = Counter()
    sizes: dict[_Pair, str] = {}
    for shape in shapes:
        pair = _pair_of(shape)
        if pair is None:
            continue
        sizes.setdefault(pair, " x ".join(map(str, shape.shape)))
        forward[pair] += 2 * _elements(shape) * tokens
        if training:
            backward[pair] += (4 if shape.trainable else 2) * _elements(shape) * tokens
    differences = []
    for pair, expected in forward.items():
        met = products.forward[pair] / steps
        of_tokens = f"{met / expected * tokens:,.5g} of {tokens:,} tokens"
        forward_pass = f"{sizes[pair]} in the forward pass: {of_tokens}"
        differences.append(FlopDifference(forward_pass, round(met) - expected))
    for pair, expected in backward.items():
        met = products.backward[pair] / steps
        gradients = f"gradients of {sizes[pair]}: {met / expected:.1%} of what the formula counts"
        differences.append(FlopDifference(gradients, round(met) - expected))
    return differences


def _products(work: Work, shapes: Sequence[ParameterShape]) -> _Products:
    """All products of `work`, by what they multiply."""
    pairs = {pair for shape in shapes if (pair := _pair_of(shape)) is not None}
    # Of experts kept in one tensor: what a batched product with them has on its right.
    experts = {
        (shape.shape[0], _pair_of(shape)) for shape in shapes if len(shape.shape) == _EXPERT_AXES
    }
    products = _Products()
    going_back: list[tuple[MatrixProduct | None, int]] = []
    for group in call_groups(work):
        flops = _model_flops(group)
        cost = group.signature.cost
        if not flops or cost is None or group.phase == "optimizer":
            continue
        product = cost.product
        if "conv" in group.signature.name:
            products.convolution += flops
        elif _is_attention(cost, experts):
            if group.phase == "backward":
                products.attention_backward += flops
            else:
                products.attention_forward += flops
        elif group.phase == "backward":
            going_back.append((product, flops))
        elif product is None:
            products.forward[None] += flops
        else:
            pair = _pair((product.inner, product.columns))
            known = pair if pair in pairs else None
            products.forward[known] += flops
            if known is None:
                products.rows_of_the_rest[product.rows] += flops
                products.calls_of_the_rest[product.rows] += group.calls
            else:
                products.rows.setdefault(known, set()).add(product.rows)
    for product, flops in going_back:
        products.backward[_backward_pair(product, products.rows)] += flops
    return products


def _model_flops(group: CallGroup) -> int:
    """Matmul FLOPs of all calls of `group`, attention in full; 0 for what is recomputed."""
    cost = group.signature.cost
    if cost is None or cost.flops is None or group.repeated:
        return 0
    return group.calls * (full_matmul_flops(cost) - full_recomputed_flops(cost))


def _is_attention(cost: Cost, experts: set[tuple[int, _Pair | None]]) -> bool:
    """A fused attention, or a batched product that is not one with the weights of experts."""
    if cost.weight_bytes != 0 or cost.key_value_bytes == 0:
        return False
    product = cost.product
    if product is None:
        return True
    return not any((product.batch, pair) in experts for _, pair in _as_weights(product))


def _backward_pair(
    product: MatrixProduct | None, rows_of_pair: dict[_Pair, set[int]]
) -> _Pair | None:
    """The weight whose gradient, or whose input's gradient, `product` computes.

    Of the three sizes of a product two are the weight's and one the rows that it met forward.
    """
    for rows, pair in () if product is None else _as_weights(product):
        if rows in rows_of_pair.get(pair, ()):
            return pair
    return None


def _as_weights(product: MatrixProduct) -> Iterator[tuple[int, _Pair]]:
    """Each of the three sizes as the rows, with the other two as those of a weight."""
    sizes = (product.rows, product.inner, product.columns)
    for index in range(3):
        small, large = sorted(sizes[:index] + sizes[index + 1 :])
        yield sizes[index], (small, large)
