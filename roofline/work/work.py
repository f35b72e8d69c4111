"""The device work of the profiled steps, and what the calls that own it cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import msgspec
import polars as pl

from gpuprof.collectors.capture import Capture
from gpuprof.collectors.joining.graph_partners import replayed_kernels
from gpuprof.collectors.manifest import ParameterGroup
from gpuprof.roofline import dtypes
from gpuprof.roofline.copies import over_link
from gpuprof.roofline.cost_models import (
    cost_of,
    cost_of_kernel,
    family_of,
    is_modelled,
    is_modelled_kernel,
)
from gpuprof.roofline.cost_models.call import MKLDNN, MathMode, OpCall, parse_call
from gpuprof.roofline.cost_models.cost import Cost
from gpuprof.roofline.cost_models.kernel_launch import KernelLaunch
from gpuprof.roofline.cost_models.list_dtypes import Shape, dtypes_by_shape, list_dtype
from gpuprof.roofline.cost_models.optimizer import weight_decay
from gpuprof.roofline.cost_models.plugged import load_plugged_models
from gpuprof.roofline.cost_models.untyped import TYPES_BY_KERNELS, with_types
from gpuprof.roofline.dtypes import DType
from gpuprof.roofline.kernel_names.product_arithmetic import ProductArithmetic
from gpuprof.roofline.work.attribution import launch_of_kernels, of_operators
from gpuprof.roofline.work.counted_kernels import CountedWork, owning_themselves
from gpuprof.roofline.work.lost_work import launches_of_steps
from gpuprof.roofline.work.main_kernels import COMPUTING, with_roles
from gpuprof.roofline.work.meta_device import computes_nothing
from gpuprof.roofline.work.owners import (
    NAME_SEPARATOR,
    SIGNATURE,
    TENSOR_LIST,
    owner_table,
    with_owners,
)
from gpuprof.roofline.work.places import ProgramPlaces, with_places
from gpuprof.roofline.work.transfers import RankWaits, with_transfers, with_waits

# Operators that make a sparse tensor or ask one for its parts
# (pytorch aten/src/ATen/native/native_functions.yaml).
_OF_SPARSE_LAYOUTS: Final = (
    r"^aten::(?:_?(?:nnz|values|indices)|_?(?:crow|ccol|col|row)_indices|sparse_dim|dense_dim|"
    r"_?sparse_\w+|_?to_sparse\w*)$"
)

_TF32_UNSAID: Final = (
    "counted as fp32: neither the program's settings nor the kernel's name tell whether TF32 ran"
)


@dataclass(frozen=True)
class Signature:
    """One operator with one set of arguments, or one kernel registered or counted by itself.

    `cost` is of a single call, None if unknown.
    """

    name: str
    # Shapes and types for people, "" where not recorded.
    detail: str
    cost: Cost | None
    # Why the cost is unknown; "" where it is known.
    reason: str
    # The call as it was recorded, None where its shapes were not.
    call: OpCall | None = None
    # A kernel without an operator, at the cost that hardware counters tell.
    counted: bool = False


@dataclass(frozen=True)
class Work:
    """Device work of the profiled steps, with owners and costs.

    `kernels` has the capture's kernel columns plus kernel_row (its row there), duration_ns,
    over_link (a copy to or from the host or another device), replay (a number for each replay of a
    graph; null: launched itself), owner_id (the owner's call; null: no operator; below 0: the
    kernel itself), owner_op_id (that operator's op_id), signature (index into `signatures`, null:
    no operator), phase, recompute (the owner ran in activation checkpointing's second forward;
    null: no operator), compute_kernels (how many kernels that compute, which memcpy and memset do
    not, the owner's call launched), role, main_kernel and share
    (`gpuprof.roofline.work.main_kernels`), and what it moves over a link
    (`gpuprof.roofline.work.transfers`), place and caller
    (`gpuprof.roofline.work.places`), and multiplied (of the owner, where that is a product).
    """

    kernels: pl.DataFrame
    signatures: tuple[Signature, ...]
    steps: int
    # Device time of what belongs to no profiled step.
    outside_ns: int = 0
    # Launches in the profiled steps, and those of them whose device work was not recorded.
    launches: int = 0
    lost_launches: int = 0
    # Where in the program the work comes from.
    places: ProgramPlaces = field(default_factory=ProgramPlaces)
    # No step was profiled: the one step that `steps` counts is all that was recorded.
    whole_trace: bool = False

    @property
    def per(self) -> str:
        """What means over `steps` are of, behind a figure."""
        return "in the trace" if self.whole_trace else "a step"

    def modelled(self) -> "Work":
        """The same work without the costs that counters tell.

        What ran is not what a model needs: padding is in it, and nothing says what are weights.
        """
        signatures = tuple(
            replace(each, cost=None) if each.counted else each for each in self.signatures
        )
        return replace(self, signatures=signatures)

    def where(self, condition: pl.Expr) -> "Work":
        """The part whose kernels fulfil `condition`; where all do, without a copy of them."""
        chosen = self.kernels.select(condition.fill_null(value=False)).to_series()
        return self if chosen.all() else replace(self, kernels=self.kernels.filter(chosen))

    def with_waits(self, waits: RankWaits) -> "Work":
        """The same work with what its collectives waited for other ranks."""
        return replace(self, kernels=with_waits(self.kernels, waits))


def find_work(capture: Capture, math_mode: MathMode, counted: Sequence[CountedWork] = ()) -> Work:
    """The device work of an attributed one-rank capture.

    `counted` is what hardware counters tell of its kernels, for those that have no operator.
    Work outside the profiled steps is left out where there are such steps.
    """
    load_plugged_models()
    kernels = capture.kernels.with_columns(pl.int_range(pl.len()).alias("kernel_row"))
    if computes_nothing(capture):
        kernels = kernels.clear()
    kernels = _with_replays(kernels, capture)
    kernels = kernels.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns"))
    steps = capture.steps.filter(pl.col("phase") == "profiled").height
    outside_ns = 0
    if steps and kernels["step"].null_count():
        outside_ns = int(kernels.filter(pl.col("step").is_null())["duration_ns"].sum())
        kernels = kernels.filter(pl.col("step").is_not_null())
    kernels = with_owners(kernels.with_columns(over_link=over_link()), capture)
    launched = launches_of_steps(capture)
    grouped = (
        owner_table(kernels, capture)
        .group_by(*SIGNATURE, maintain_order=True)
        .agg(
            "owner_id",
            "phase",
            "recompute",
            incomplete=pl.col("owner_id").is_in(launched.incomplete_owners.implode()).any(),
        )
        .with_row_index("signature")
    )
    unique = grouped.select("signature", "incomplete", *SIGNATURE)
    owners = grouped.select("signature", "owner_id", "phase", "recompute").explode(
        "owner_id", "phase", "recompute"
    )
    compute = (
        kernels.select("owner_id", "kind")
        .filter(pl.col("kind").is_in(COMPUTING))
        .group_by("owner_id")
        .agg(pl.len().alias("compute_kernels"))
    )
    kernels = _with_columns(
        kernels,
        kernels.select("owner_id")
        .join(owners, on="owner_id", how="left", maintain_order="left")
        .join(compute, on="owner_id", how="left", maintain_order="left")
        .drop("owner_id"),
    )
    calls = dict(owners.group_by("signature").len().iter_rows())
    opaque_is_dense = _opaque_is_dense(capture.ops)
    lists = _Lists(_dtypes_by_shape(capture.ops, unique), capture.processes[0].parameter_groups)
    signatures = tuple(
        _signature(
            row,
            math_mode,
            lists,
            calls_per_step=calls[row["signature"]] / max(steps, 1),
            opaque_is_dense=opaque_is_dense,
        )
        for row in unique.iter_rows(named=True)
    )
    kernels, own = owning_themselves(kernels, counted, len(signatures))
    signatures += tuple(
        Signature(kind.kernel, "", kind.cost, kind.reason, counted=True) for kind in own
    )
    kernels = with_roles(
        kernels.with_columns(pl.col("phase").fill_null("")),
        [signature.cost for signature in signatures],
    )
    launches_ns = launch_of_kernels(capture)["launch_ns"]
    elementwise = [index for index, one in enumerate(signatures) if _is_elementwise(one.name)]
    kernels = with_transfers(
        kernels.with_columns(
            launch_ns=launches_ns.gather(kernels["kernel_row"]),
            elementwise=pl.col("signature").is_in(elementwise),
        ),
        [(signature.call, signature.cost) for signature in signatures],
    )
    kernels, places = with_places(kernels, capture)
    kernels = _with_columns(
        kernels, of_operators(capture.ops, kernels["owner_op_id"], "multiplied")
    )
    return Work(
        kernels,
        signatures,
        max(steps, 1),
        outside_ns,
        launched.count,
        launched.lost_count,
        places=places,
        whole_trace=not steps,
    )


def _is_elementwise(name: str) -> bool:
    """Whether an operator gives each element of one tensor for itself, or copies it."""
    return family_of(name) in ("elementwise", "movement")


def _with_replays(kernels: pl.DataFrame, capture: Capture) -> pl.DataFrame:
    replays = replayed_kernels(capture).select(
        pl.col("kernel_row").cast(pl.Int64),
        replay=pl.struct("process", "correlation").rle_id().cast(pl.Int64),
    )
    found = kernels.select("kernel_row").join(
        replays, on="kernel_row", how="left", maintain_order="left"
    )
    return _with_columns(kernels, found.select("replay"))


def _with_columns(kernels: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """`kernels` with the columns of `found`, row by row: a join would copy all that they have."""
    return pl.concat([kernels, found], how="horizontal")


def _opaque_is_dense(ops: pl.DataFrame) -> bool:
    """Whether tensors without strides are mkldnn's: it is in use, and nothing of sparse layouts."""
    names = ops["name"].unique()
    return bool(
        names.str.contains(MKLDNN).any() and not names.str.contains(_OF_SPARSE_LAYOUTS).any()
    )


def _dtypes_by_shape(ops: pl.DataFrame, signatures: pl.DataFrame) -> dict[Shape, DType]:
    """What the trace's other tensors tell of the lists in `signatures`; read only if there are."""
    if not signatures["input_types"].str.contains(TENSOR_LIST, literal=True).any():
        return {}
    # Numbers, of which fewer bytes are compared.
    coded = ops.select(pl.col("input_dims", "input_types").cast(pl.Categorical)).unique()
    return dtypes_by_shape(coded.cast(pl.String).iter_rows())


@dataclass(frozen=True)
class _Lists:
    """What is known of lists of tensors beside what a trace says of them."""

    dtypes: Mapping[Shape, DType]
    groups: tuple[ParameterGroup, ...]

    def complete(self, call: OpCall, calls_per_step: float) -> OpCall:
        """`call` with the type of its lists, and their size where it is a group's only step."""
        if self.dtypes:
            call = replace(call, list_dtype=list_dtype(call, self.dtypes))
        decay = weight_decay(call)
        groups = [group for group in self.groups if group.weight_decay == decay]
        if decay is None or len(groups) != 1 or calls_per_step != 1:
            return call
        return replace(
            call,
            list_elements=groups[0].elements,
            list_dtype=call.list_dtype or dtypes.parse(groups[0].dtype),
        )


def _signature(
    row: dict[str, Any],
    math_mode: MathMode,
    lists: _Lists,
    *,
    calls_per_step: float,
    opaque_is_dense: bool,
) -> Signature:
    name = row["name"] or ""
    detail = _detail(row["input_dims"], row["input_types"])
    call = parse_call(
        name,
        row["input_dims"],
        row["input_types"],
        row["input_strides"],
        row["concrete_inputs"],
        math_mode,
        kernels=(row["kernel_names"] or "").split(NAME_SEPARATOR) if row["kernel_names"] else (),
    )
    if row["incomplete"]:
        return Signature(
            name, detail, None, "some of its launches have no device work recorded", call
        )
    if row["kernel"] is not None:
        return _kernel_signature(row, call)
    if not is_modelled(name):
        return Signature(name, detail, None, f"no cost model for {name}", call)
    caller = _caller(row)
    if call is None and caller is not None:
        call = OpCall(name, (), math_mode)
    if call is None:
        return Signature(name, detail, None, "shapes were not recorded (record_shapes=True)")
    if call.sparse and not opaque_is_dense:
        reason = "an operand is sparse: the trace does not hold how many of its elements there are"
        return Signature(name, detail, None, reason, call)
    recorded, call = call, with_types(call)
    typed = () if call is recorded else (TYPES_BY_KERNELS,)
    call = replace(
        lists.complete(call, calls_per_step),
        collective=row["collective"] or "",
        collective_dtype=row["collective_dtype"] or "",
        caller=caller,
        arithmetic=_arithmetic(row["arithmetic"]) or call.arithmetic,
        argument_names=tuple(msgspec.json.decode(row["argument_names"] or "[]")),
        argument_accesses=tuple(msgspec.json.decode(row["argument_accesses"] or "[]")),
        grid=_dimensions(row, "grid"),
        block=_dimensions(row, "block"),
        sparse=False,
    )
    cost, reason = _cost(partial(cost_of, call), name)
    if cost is not None:
        cost = _with_float32_said(cost, call)
        cost = msgspec.structs.replace(cost, assumptions=(*cost.assumptions, *typed))
    return Signature(name, detail, cost, reason, call)


def _caller(row: dict[str, Any]) -> OpCall | None:
    """The operator above, where its own record has shapes."""
    if row["caller"] is None:
        return None
    return parse_call(row["caller"], row["caller_dims"], row["caller_types"], None, None)


def _arithmetic(text: str | None) -> ProductArithmetic | None:
    return None if text is None else msgspec.json.decode(text, type=ProductArithmetic)


def _with_float32_said(cost: Cost, call: OpCall) -> Cost:
    """`cost` with what its count of float32 products rests on, where it has any."""
    products = {part.precision for part in cost.flops or () if part.kind == "matmul"}
    told, mode = call.arithmetic, call.math_mode
    assumptions: tuple[str, ...] = ()
    if told is not None and told.float32 in products:
        assumptions = told.notes
    elif "fp32" in products and None in (mode.tf32_matmul, mode.tf32_convolution):
        assumptions = (_TF32_UNSAID,)
    return msgspec.structs.replace(cost, assumptions=(*cost.assumptions, *assumptions))


def _kernel_signature(row: dict[str, Any], call: OpCall | None) -> Signature:
    name = row["kernel"]
    if not is_modelled_kernel(name):
        # On a CPU: what an operator does beside those that it calls.
        return Signature(name, "", None, f"no cost model for what {name} does itself", call)
    launch = KernelLaunch(
        name,
        _dimensions(row, "grid"),
        _dimensions(row, "block"),
        row["registers"],
        row["shared_memory"],
        call,
    )
    sizes = (("grid", launch.grid), ("block", launch.block))
    detail = ", ".join(f"{part} {'x'.join(map(str, size))}" for part, size in sizes if size)
    return Signature(name, detail, *_cost(partial(cost_of_kernel, launch), name), call)


def _dimensions(row: dict[str, Any], part: str) -> tuple[int, int, int] | None:
    x, y, z = (row[f"{part}_{axis}"] for axis in "xyz")
    return None if None in (x, y, z) else (x, y, z)


def _cost(model: Callable[[], Cost | None], name: str) -> tuple[Cost | None, str]:
    """The answer of a model and why it has none."""
    try:
        cost = model()
    except Exception as error:
        # Programs register models of their own; a wrong one makes its operator unknown, no more.
        return None, f"the cost model of {name} raised {type(error).__name__}: {error}"
    return cost, "" if cost is not None else f"the cost model of {name} does not cover this call"


def _detail(input_dims: str | None, input_types: str | None) -> str:
    if input_dims is None:
        return ""
    return input_dims if input_types in (None, "[]") else f"{input_dims} {input_types}"
