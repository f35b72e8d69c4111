"""What inductor makes kernels of, noted while it generates their code.

Each node of the graph that a kernel is made of knows the operator that it comes from, the stack of
Python frames that called it and the modules around that, of a backward pass those of its forward
(pytorch torch/fx/proxy.py, torch/_functorch/_aot_autograd/utils.py). Generated code keeps none of
it. So functions that inductor calls once for each call of a kernel, the same from torch 2.6 to
2.13, are replaced by ones that note the nodes. What torch takes from its cache of graphs is not
generated, and nothing is known of it.
"""

import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import wraps
from itertools import count
from typing import Any, Final

import torch

from gpuprof.collectors.live.module_import import once_imported
from gpuprof.collectors.live.replaced import replace
from gpuprof.collectors.live.script_errors import hiding_our_errors

# Whoever generates code imports it; its own imports are over by then.
_GRAPH: Final = "torch._inductor.graph"
# Those that define kernels, each by the name of its class.
_SCHEDULINGS: Final = (
    ("torch._inductor.codegen.triton", "TritonScheduling"),
    ("torch._inductor.codegen.cpp", "CppScheduling"),
)
# What inductor calls by a name of its own (torch/_inductor/kernel/mm.py).
_OTHER_NAMES: Final = {"bias_addmm": "addmm"}
# Operators that only look at a tensor in another way: they do no work in a kernel.
_VIEWS: Final = frozenset(
    f"aten::{name}"
    for name in (
        *(
            "_unsafe_view",
            "alias",
            "as_strided",
            "detach",
            "expand",
            "permute",
            "reshape",
            "select",
        ),
        *("slice", "split", "squeeze", "t", "transpose", "unsqueeze", "view"),
    )
)
# How torch marks a stack that is not of the sum but of what the gradients are of
# (pytorch torch/fx/traceback.py, torch/_functorch/_aot_autograd/logging_utils.py).
_GRADIENT_SUM: Final = "Gradient addition node"
# Products that add a tensor to their result, and the operator without that.
_PRODUCTS_WITH_SUM: Final = {"aten::addmm": "aten::mm", "aten::baddbmm": "aten::bmm"}
# Transpositions that torch itself makes for a product.
_TRANSPOSED: Final = ("aten::t", "aten::transpose")


@dataclass(frozen=True)
class Origin:
    """One operator that a kernel was made of."""

    # As the program's graph has it: aten::gelu.
    operator: str
    # As Python prints one, the outermost frame first.
    stack: str
    # What dynamo calls each module around it, L['self'].blocks.0, and its class; outermost first.
    modules: tuple[tuple[str, str], ...]
    backward: bool


@dataclass(frozen=True)
class GeneratedCall:
    """One place in generated code that calls a kernel."""

    # Of all in this process.
    number: int
    # As a profile shows it: triton_poi_fused_gelu_0, cpp_fused_gelu_0, aten::mm.
    kernel: str
    # In the order of the graph, each once.
    origins: tuple[Origin, ...]


# Calls in the order of each compiled graph, by its id; of graphs that are gone there are none.
_graphs: dict[int, tuple[GeneratedCall, ...]] = {}
# Those of graphs whose code is generated and which are not put together yet.
_generated: weakref.WeakKeyDictionary[Any, tuple[GeneratedCall, ...]] = weakref.WeakKeyDictionary()
_numbers = count()
_exits = ExitStack()


class _Generating(threading.local):
    """What this thread generates."""

    calls: list[GeneratedCall] | None = None
    # The place of each node in its graph.
    order: dict[Any, int]


_generating = _Generating()


def install(*, anew: bool = False) -> None:
    """Note what is generated from now on; `anew`: take no graph from torch's caches.

    A program that turns the caches on itself has them.
    """

    def begin() -> None:
        with hiding_our_errors():
            if anew:
                _attribute("torch._inductor", "config").fx_graph_cache = False
                _attribute("torch._functorch", "config").enable_autograd_cache = False
            _watch_graphs()

    _exits.enter_context(once_imported(_GRAPH, begin))


def remove() -> None:
    """Note nothing more, and forget what was noted."""
    _exits.close()
    _graphs.clear()
    _generated.clear()


def calls_of(compiled: Any) -> tuple[GeneratedCall, ...]:
    """The calls of kernels in the code of `compiled`, a CompiledFxGraph; none where not noted."""
    return _graphs.get(id(compiled), ())


def _watch_graphs() -> None:
    lowering = _attribute(_GRAPH, "GraphLowering")
    original = lowering.compile_to_module
    # Modules that this needs are imported by the time when code is generated.
    watch_kernels = [_watch_kernels]

    @wraps(original)
    def compile_to_module(graph: Any, *args: Any, **kwargs: Any) -> Any:
        if _generating.calls is not None:
            # A part of another graph.
            return original(graph, *args, **kwargs)
        with hiding_our_errors():
            while watch_kernels:
                watch_kernels.pop()()
        _generating.calls, _generating.order = [], {}
        try:
            return original(graph, *args, **kwargs)
        finally:
            _generated[graph] = tuple(_generating.calls)
            _generating.calls, _generating.order = None, {}

    _exits.callback(replace(lowering, compile_to_module=compile_to_module))


def _watch_kernels() -> None:
    for module, scheduling in _SCHEDULINGS:
        if module in sys.modules:
            _watch_definitions(_attribute(module, scheduling))
    _watch_library_calls(_attribute("torch._inductor.ir", "ExternKernel"))
    _watch_compiled_graphs(_attribute("torch._inductor.output_code", "CompiledFxGraph"))


def _attribute(module: str, name: str) -> Any:
    return getattr(sys.modules[module], name)


def _watch_definitions(scheduling: Any) -> None:
    original = scheduling.define_kernel

    @wraps(original)
    def define_kernel(self: Any, source: str, nodes: Any, *args: Any, **kwargs: Any) -> Any:
        kernel = original(self, source, nodes, *args, **kwargs)
        with hiding_our_errors():
            _add(str(kernel), _nodes_of(nodes))
        return kernel

    _exits.callback(replace(scheduling, define_kernel=define_kernel))


def _watch_library_calls(extern: Any) -> None:
    original = extern.codegen_comment

    @wraps(original)
    def codegen_comment(self: Any, wrapper: Any, *args: Any, **kwargs: Any) -> Any:
        with hiding_our_errors():
            # A kernel of the program's own, in Triton, has its name among the arguments.
            given = (each for each in (*args, *kwargs.values()) if isinstance(each, str))
            called = next(given, None) or _operator_called(self)
            _add(called, _nodes_of_library_call(self, called))
        return original(self, wrapper, *args, **kwargs)

    _exits.callback(replace(extern, codegen_comment=codegen_comment))


def _watch_compiled_graphs(compiled_graph: Any) -> None:
    original = compiled_graph.__init__

    @wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        with hiding_our_errors():
            lowering = _attribute(_GRAPH, "GraphLowering")
            for each in (*args, *kwargs.values()):
                if isinstance(each, lowering) and each in _generated:
                    _graphs[id(self)] = _generated.pop(each)
                    weakref.finalize(self, _graphs.pop, id(self), None).atexit = False

    _exits.callback(replace(compiled_graph, __init__=init))


def _add(kernel: str, nodes: Iterable[Any]) -> None:
    if _generating.calls is not None:
        origins = tuple(_origins(nodes, _generating.order))
        _generating.calls.append(GeneratedCall(next(_numbers), kernel, origins))


def _nodes_of(scheduled: Any) -> Iterator[Any]:
    """The nodes of the graph behind what inductor schedules together."""
    for each in scheduled:
        inner = getattr(each, "snodes", None)
        if inner is not None:
            yield from _nodes_of(inner)
        elif getattr(each, "node", None) is not None:
            yield from each.node.origins


def _nodes_of_library_call(kernel: Any, called: str) -> Iterable[Any]:
    """The nodes of the graph behind a call of a library.

    inductor adds those of inputs, which other kernels compute.
    """
    if kernel.origin_node is not None:
        return (kernel.origin_node,)
    own = [node for node in kernel.origins if called in (_name(node.target), _aten_name(node))]
    return own or kernel.origins


def _origins(nodes: Iterable[Any], order: dict[Any, int]) -> Iterable[Origin]:
    called = {node for node in nodes if node.op == "call_function"}
    for node in called:
        if node not in order:
            order.update((each, place) for place, each in enumerate(node.graph.nodes))
    found = [each for node in sorted(called, key=order.__getitem__) for each in _made_of(node)]
    working = [each for each in found if each.operator not in _VIEWS]
    return dict.fromkeys(working or found)


def _made_of(node: Any) -> Iterator[Origin]:
    """The operators of the program's graph that `node` stands for.

    A product and the sum behind it become one node, which has the place of the sum: the next layer,
    or none where gradients are added up, and then torch 2.11 tells of no operator either. What was
    transposed for the product tells where it was.
    """
    backward = node.meta.get("partitioner_tag") == "is_backward"
    operator = _aten_name(node)
    product = _PRODUCTS_WITH_SUM.get(_name(node.target))
    is_told = operator not in ("aten::add", "aten::add_") and node.meta.get("stack_trace")
    if product is not None and not is_told:
        factors = [each for each in node.args[1:3] if isinstance(each, torch.fx.Node)]
        transposed = [each for each in factors if _aten_name(each) in _TRANSPOSED]
        for each in transposed[-1:]:
            yield _origin(product, each, backward=backward)
            # The sum is no work of its own, and the kernel is where its product is.
            yield Origin("aten::add", "", (), backward)
            return
    # Where gradients are added up, torch gives the place of a neighbour.
    if node.meta.get("is_gradient_acc") or _GRADIENT_SUM in str(node.meta.get("stack_trace")):
        yield Origin(operator, "", (), backward)
    else:
        yield _origin(operator, node, backward=backward)


def _origin(operator: str, node: Any, *, backward: bool) -> Origin:
    """`operator`, where `node` is."""
    modules = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    return Origin(
        operator,
        stack=str(node.meta.get("stack_trace") or ""),
        modules=tuple((str(path), _class_name(kind)) for path, kind in modules.values()),
        backward=backward,
    )


def _class_name(kind: Any) -> str:
    # A graph that was stored meanwhile has its name in place of the class.
    return str(getattr(kind, "__qualname__", kind)).rpartition(".")[2]


def _aten_name(node: Any) -> str:
    """The operator of the program's graph that `node` was made of."""
    return _name(node.meta.get("original_aten") or node.target)


def _name(target: Any) -> str:
    """ "aten::gelu" of aten.gelu.default."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target._schema.name)
    return str(getattr(target, "__name__", target))


def _operator_called(kernel: Any) -> str:
    """The operator that code of inductor calls, as a profile shows it; "" where it is none."""
    overload = getattr(kernel, "op_overload", None)
    if isinstance(overload, torch._ops.OpOverload):
        return str(overload._schema.name)
    parts = str(kernel.python_kernel_name or "").split(".")
    if parts[0] == "extern_kernels":
        return f"aten::{_OTHER_NAMES.get(parts[-1], parts[-1])}"
    # torch.ops.aten.X.default, aten.X
    parts = parts[2:] if parts[:2] == ["torch", "ops"] else parts
    return "::".join(parts[:2])
