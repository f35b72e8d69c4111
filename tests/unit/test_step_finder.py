"""Which marks are taken for a script's steps, and that nothing is left on the script afterwards."""

import copy
import gc
import pickle
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import nvtx
import pytest
import torch
from module_hooks import has_global_hooks
from torch._dynamo.utils import counters
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.utils.checkpoint import checkpoint

from gpuprof.collectors.live import nvtx_ranges, torch_trace
from gpuprof.collectors.steps import finder as step_finder
from gpuprof.collectors.steps.finder import StepFinder
from gpuprof.collectors.steps.forward_calls import ForwardCalls
from gpuprof.collectors.steps.sources import (
    ExplicitSteps,
    GraphReplays,
    Mark,
    OptimizerSteps,
    ProfilerSteps,
    RangeSteps,
    StepSource,
    training_is_pending,
)

Module = torch.nn.Module


class Listener:
    """Keeps what it is told: ("restarted" or "boundary", label)."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.tokens: list[int | None] = []
        # Settle once so many boundaries have come.
        self.settle_after: int | None = None
        # And leave nothing but a call that counts, once so many have come.
        self.reduce_after: int | None = None
        self.counted = 0
        self.finder: StepFinder | None = None

    def boundary(self, mark: Mark) -> None:
        self.told.append(("boundary", mark.label))
        self.tokens.append(mark.tokens)
        assert self.finder is not None
        if len(self.told) == self.settle_after:
            self.finder.settle()
        if len(self.told) == self.reduce_after:
            self.finder.reduce_to(self._count)

    def _count(self) -> None:
        self.counted += 1

    def restarted(self, mark: Mark) -> None:
        self.told.append(("restarted", mark.label))
        self.tokens.append(mark.tokens)

    @property
    def labels(self) -> list[str]:
        return [label for _, label in self.told]


Install = Callable[..., tuple[StepFinder, Listener]]


@pytest.fixture
def install() -> Iterator[Install]:
    """Install a finder over the given sources; removed after the test."""
    installed = []

    def make(
        *sources: StepSource, settle_after: int | None = None, reduce_after: int | None = None
    ) -> tuple[StepFinder, Listener]:
        listener = Listener()
        finder = StepFinder(sources, listener)
        listener.finder, listener.settle_after = finder, settle_after
        listener.reduce_after = reduce_after
        finder.install()
        installed.append(finder)
        return finder, listener

    yield make
    for finder in installed:
        finder.remove()
    assert_nothing_is_left()


def assert_nothing_is_left(*modules: Module) -> None:
    """No hook of ours on torch, nor on `modules`."""
    assert not has_global_hooks()
    assert not _global_optimizer_post_hooks
    assert not _global_optimizer_pre_hooks
    assert torch.profiler.profile.step.__module__ == "torch.profiler.profiler"
    assert Module._compiled_call_impl is None
    for module in modules:
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert "_compiled_call_impl" not in vars(module)
        assert "_compiled_call_impl" not in vars(type(module))


class Block(Module):
    """A module with inner modules, one of them called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.activation = torch.nn.ReLU()
        self.second = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.activation(self.second(self.activation(self.first(x))))


class Loss(Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum()


def make_optimizer(model: Module, kind: Any = torch.optim.SGD) -> torch.optim.Optimizer:
    optimizer: torch.optim.Optimizer = kind(model.parameters(), lr=0.01)
    return optimizer


X = torch.ones(2, 4)
FORWARD = "forward calls of Block"
SGD = "optimizer steps (SGD)"


def test_the_outermost_module_that_recurs_marks_the_steps(install: Install) -> None:
    finder, listener = install(ForwardCalls())
    model, loss = Block(), Loss()
    for _ in range(3):
        loss(model(X))
    assert listener.told == [("restarted", FORWARD)] + [("boundary", FORWARD)] * 2
    assert finder.leader is not None
    assert finder.leader.label == FORWARD


def test_a_module_that_is_called_once_does_not_keep_the_lead(install: Install) -> None:
    _, listener = install(ForwardCalls())
    torch.nn.Linear(4, 4)(X)
    model = Block()
    for _ in range(3):
        model(X)
    assert listener.told == [
        ("restarted", "forward calls of Linear"),
        ("restarted", FORWARD),
        ("boundary", FORWARD),
    ]


def test_a_module_that_raises_is_followed_by_the_next_call(install: Install) -> None:
    _, listener = install(ForwardCalls())
    model = Block()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            model(torch.ones(2, 5))
    model(X)
    assert listener.labels == [FORWARD] * 3


def call_elsewhere(model: Module, times: int) -> None:
    thread = threading.Thread(target=lambda: [model(X) for _ in range(times)])
    thread.start()
    thread.join()


def test_an_evaluation_on_another_thread_is_no_step(install: Install) -> None:
    _, listener = install(ForwardCalls())
    model, other = Block(), Block()
    call_elsewhere(other, 3)
    assert listener.told == []
    for _ in range(4):
        model(X)
        call_elsewhere(other, 20)
        call_elsewhere(model, 20)
    assert listener.labels == [FORWARD] * 4


def test_a_thread_that_serves_steps_where_the_main_one_does_not(install: Install) -> None:
    _, listener = install(ForwardCalls())
    # Inner modules are no calls of their own.
    call_elsewhere(Block(), 12)
    assert listener.labels == [FORWARD] * 4


@pytest.mark.parametrize("settle", [False, True])
def test_only_a_thread_that_goes_on_alone_takes_over(install: Install, settle: bool) -> None:
    _, listener = install(ForwardCalls())
    listener.settle_after = 2 if settle else None
    model = Block()
    for _ in range(4):
        model(X)
        # As of a pool that takes turns.
        call_elsewhere(model, 60)
    model(X)
    assert listener.labels == [FORWARD] * 5
    # A warm-up on the main thread, and then a server.
    call_elsewhere(model, 70)
    assert listener.labels == [FORWARD] * (5 + 6)
    model(X)
    assert len(listener.labels) == 5 + 6


def test_a_thread_whose_steps_are_profiled_keeps_them(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, listener = install(ForwardCalls())
    monkeypatch.setattr(torch_trace, "records_steps", lambda: True)
    model = Block()
    model(X)
    call_elsewhere(model, 100)
    assert listener.labels == [FORWARD]


def test_later_steps_are_those_of_the_thread_that_stepped(install: Install) -> None:
    _, listener = install(ForwardCalls())
    listener.settle_after, listener.reduce_after = 2, 3
    model = Block()
    for _ in range(5):
        model(X)
    call_elsewhere(model, 100)
    assert listener.counted == 2


def test_an_optimizer_takes_over_from_forward_calls(install: Install) -> None:
    finder, listener = install(OptimizerSteps(), ForwardCalls())
    model = Block()
    optimizer = make_optimizer(model)
    for _ in range(3):
        # Gradient accumulation: two forward calls a step.
        for _ in range(2):
            model(X).sum().backward()
        optimizer.step()
    assert listener.told == [
        ("restarted", FORWARD),
        ("boundary", FORWARD),
        ("restarted", SGD),
        ("boundary", SGD),
        ("boundary", SGD),
    ]
    assert finder.leader is not None
    assert finder.leader.label == SGD


def test_explicit_steps_take_over_from_everything(install: Install) -> None:
    explicit = ExplicitSteps()
    _, listener = install(explicit, OptimizerSteps(), ForwardCalls())
    model = Block()
    optimizer = make_optimizer(model)
    for _ in range(2):
        model(X).sum().backward()
        optimizer.step()
        explicit.step(512)
    assert listener.told[-2:] == [
        ("restarted", "gpuprof.step() calls"),
        ("boundary", "gpuprof.step() calls"),
    ]
    assert listener.tokens[-2:] == [512, 512]


def test_a_more_trusted_source_takes_over_after_settling_too(install: Install) -> None:
    explicit = ExplicitSteps()
    finder, listener = install(explicit, OptimizerSteps(), settle_after=2)
    model = Block()
    optimizer = make_optimizer(model)
    model(X).sum().backward()
    for _ in range(3):
        optimizer.step()
    explicit.step(None)
    optimizer.step()
    assert listener.told[-1] == ("restarted", "gpuprof.step() calls")
    assert finder.may_settle()


def test_of_two_optimizers_that_alternate_one_marks_the_steps(install: Install) -> None:
    _, listener = install(OptimizerSteps(), settle_after=3)
    generator, discriminator = Block(), Block()
    optimizers = [make_optimizer(discriminator), make_optimizer(generator, torch.optim.Adam)]
    for model in (generator, discriminator):
        model(X).sum().backward()
    for _ in range(5):
        for optimizer in optimizers:
            optimizer.step()
    assert listener.told == [("restarted", SGD)] + [("boundary", SGD)] * 4


def test_an_optimizer_that_steps_once_does_not_keep_the_lead(install: Install) -> None:
    _, listener = install(OptimizerSteps())
    model = Block()
    model(X).sum().backward()
    make_optimizer(model, torch.optim.Adam).step()
    optimizer = make_optimizer(model)
    for _ in range(3):
        optimizer.step()
    assert listener.told == [
        ("restarted", "optimizer steps (Adam)"),
        ("restarted", SGD),
        ("boundary", SGD),
    ]


@pytest.mark.parametrize("faster_steps", [2, 5, 20])
def test_of_several_optimizers_the_one_with_the_longest_period_marks_the_steps(
    install: Install, faster_steps: int
) -> None:
    finder, listener = install(OptimizerSteps(), ForwardCalls())
    critic, generator = Block(), Block()
    of_critic, of_generator = (
        make_optimizer(critic),
        make_optimizer(generator, torch.optim.Adam),
    )
    for model in (critic, generator):
        model(X).sum().backward()
    for _ in range(5):
        for _ in range(faster_steps):
            of_critic.step()
            if finder.leader is not None and finder.leader.label == SGD:
                assert not finder.may_settle()
        of_generator.step()
    longest = "optimizer steps (Adam), the longest period of 2 optimizers"
    assert ("restarted", longest) in listener.told
    assert finder.leader is not None
    assert finder.leader.label == longest
    assert listener.told[-1] == ("boundary", "optimizer steps (Adam)")
    assert finder.may_settle()


def test_an_optimizer_that_skips_a_step_has_no_longer_period(install: Install) -> None:
    finder, listener = install(OptimizerSteps())
    model, other = Block(), Block()
    optimizer, skipping = make_optimizer(model), make_optimizer(other, torch.optim.Adam)
    for each in (model, other):
        each(X).sum().backward()
    for iteration in range(6):
        optimizer.step()
        if iteration != 2:
            skipping.step()
    assert listener.told == [("restarted", SGD)] + [("boundary", SGD)] * 5
    assert finder.may_settle()


def test_an_optimizer_that_never_steps_is_not_waited_for_long(install: Install) -> None:
    finder, _ = install(OptimizerSteps())
    model, other = Block(), Block()
    optimizer, unused = make_optimizer(model), make_optimizer(other)
    settled = []
    for _ in range(30):
        optimizer.step()
        settled.append(finder.may_settle())
    allowed = step_finder._STEPS_BEFORE_ANOTHER_OPTIMIZER
    assert settled == [False] * allowed + [True] * (30 - allowed)
    del unused


def test_a_wrapper_of_an_optimizer_is_not_waited_for(install: Install) -> None:
    finder, _ = install(OptimizerSteps())
    optimizer = make_optimizer(Block())

    class Wrapper(torch.optim.Optimizer):
        """As accelerate's: it has the parameters of the optimizer inside and no hooks."""

        def __init__(self) -> None:
            self.inner = optimizer
            self.param_groups = optimizer.param_groups

        def step(self, closure: Any = None) -> None:
            self.inner.step()

    wrapper = Wrapper()
    wrapper.step()
    assert finder.may_settle()


@pytest.fixture
def replay(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    """Replays a graph, without a GPU."""
    replayed: list[object] = []

    def remember(graph: object) -> None:
        replayed.append(graph)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", remember)

    def one(graph: Any) -> None:
        before = len(replayed)
        torch.cuda.CUDAGraph.replay(graph)
        assert replayed[before:] == [graph]

    return one


class Graph:
    """Stands for a captured CUDA graph."""


REPLAYS = "replays of a CUDA graph"


def test_replays_are_steps_where_nothing_else_marks_any(
    replay: Callable[[object], None], install: Install
) -> None:
    _, listener = install(OptimizerSteps(), ForwardCalls(), GraphReplays())
    graph = Graph()
    for _ in range(3):
        replay(graph)
    assert listener.told == [("restarted", REPLAYS)] + [("boundary", REPLAYS)] * 2


@pytest.mark.parametrize("settle_after", [None, 3])
def test_replays_take_over_from_the_steps_before_the_capture(
    replay: Callable[[object], None], install: Install, settle_after: int | None
) -> None:
    finder, listener = install(
        OptimizerSteps(), ForwardCalls(), GraphReplays(), settle_after=settle_after
    )
    model, graph = Block(), Graph()
    optimizer = make_optimizer(model)
    for _ in range(3):
        model(X).sum().backward()
        optimizer.step()
    for _ in range(40):
        replay(graph)
    assert listener.told.count(("restarted", REPLAYS)) == 1
    assert listener.labels[-20:] == [REPLAYS] * 20
    # A look at the model beside the replays is no step any more.
    model(X).sum().backward()
    optimizer.step()
    replay(graph)
    assert listener.labels[-1] == REPLAYS
    assert finder.leader is not None
    assert finder.leader.label == REPLAYS


def test_replays_of_micro_batches_do_not_take_over(
    replay: Callable[[object], None], install: Install
) -> None:
    _, listener = install(OptimizerSteps(), GraphReplays())
    model, graph = Block(), Graph()
    optimizer = make_optimizer(model)
    model(X).sum().backward()
    for _ in range(4):
        for _ in range(32):
            replay(graph)
        optimizer.step()
    assert listener.told[-4:] == [("restarted", SGD)] + [("boundary", SGD)] * 3


def test_a_forward_call_inside_a_backward_pass_is_no_step(install: Install) -> None:
    _, listener = install(ForwardCalls())
    model = Block()
    for _ in range(3):
        x = X.clone().requires_grad_()
        checkpoint(model, x, use_reentrant=False).sum().backward()
    assert listener.told == [("restarted", FORWARD)] + [("boundary", FORWARD)] * 2


def test_the_profilers_steps_are_seen_and_our_own_profilers_are_not(install: Install) -> None:
    _, listener = install(ProfilerSteps(torch_trace.own_profilers))
    theirs = torch.profiler.profile()
    ours = torch.profiler.profile()
    torch_trace.own_profilers.add(id(ours))
    try:
        for profiler in (theirs, ours, theirs):
            profiler.step()
    finally:
        torch_trace.own_profilers.discard(id(ours))
    assert listener.labels == ["torch.profiler steps"] * 2


def test_only_the_named_range_marks_steps(install: Install) -> None:
    nvtx_ranges.install()
    _, listener = install(RangeSteps("iteration"))
    for name in ("iteration", "other", "iteration"):
        nvtx.push_range(name)
        nvtx.pop_range()
    assert listener.labels == ["NVTX ranges named 'iteration'"] * 2


def test_forward_calls_settle_at_once_only_where_nothing_is_trained(install: Install) -> None:
    finder, _ = install(OptimizerSteps(), ForwardCalls())
    model = Block()
    optimizer = make_optimizer(model)
    model(X)
    assert training_is_pending()
    assert not finder.may_settle()
    with torch.no_grad():
        assert finder.may_settle()
    del optimizer
    gc.collect()
    assert finder.may_settle()


def test_forward_calls_settle_where_no_optimizer_step_comes(install: Install) -> None:
    finder, _ = install(OptimizerSteps(), ForwardCalls())
    model = Block()
    optimizer = make_optimizer(model)
    model(X)
    allowed = step_finder._FORWARD_CALLS_BEFORE_AN_OPTIMIZER
    assert [finder.may_settle() for _ in range(allowed + 1)] == [False] * allowed + [True]
    del optimizer


def test_a_proxy_whose_object_is_gone_does_not_stop_the_search() -> None:
    proxy = weakref.proxy(Block())
    gc.collect()
    with torch.enable_grad():
        assert isinstance(training_is_pending(), bool)
    del proxy


@pytest.mark.parametrize("settle_after", [1, 3])
def test_settling_narrows_to_the_module_and_leaves_no_hook(
    install: Install, settle_after: int
) -> None:
    finder, listener = install(ForwardCalls(), settle_after=settle_after)
    model, other, loss = Block(), Block(), Loss()
    if settle_after == 1:
        listener.restarted = lambda mark: listener.boundary(mark)  # type: ignore[method-assign]
    for _ in range(6):
        loss(other(model(X)))
    assert listener.labels == [FORWARD] * 6
    assert not has_global_hooks()
    assert Module._compiled_call_impl is None
    finder.remove()
    assert_nothing_is_left(model, other, loss)


def test_settling_narrows_to_the_optimizer_and_leaves_no_global_hook(install: Install) -> None:
    finder, listener = install(OptimizerSteps(), ForwardCalls(), settle_after=3)
    model = Block()
    optimizer, other = make_optimizer(model), make_optimizer(model)
    for _ in range(5):
        model(X).sum().backward()
        optimizer.step()
        other.step()
    assert listener.labels == [FORWARD] + [SGD] * 5
    assert not _global_optimizer_post_hooks
    assert_nothing_is_left(model)
    assert len(optimizer._optimizer_step_post_hooks) == 1
    assert not other._optimizer_step_post_hooks
    finder.remove()
    assert not optimizer._optimizer_step_post_hooks


def test_removing_during_a_call_is_final(install: Install) -> None:
    finder, listener = install(ForwardCalls())
    listener.boundary = lambda mark: finder.remove()  # type: ignore[method-assign]
    model = Block()
    for _ in range(4):
        model(X)
    assert listener.labels == [FORWARD]
    assert_nothing_is_left(model)


@pytest.mark.parametrize("settle_after", [None, 2])
def test_a_watched_model_can_be_copied_and_pickled(
    install: Install, settle_after: int | None
) -> None:
    install(ForwardCalls(), settle_after=settle_after)
    model = Block()
    for _ in range(3):
        model(X)
    with torch.no_grad():
        expected = model(X)
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            torch.testing.assert_close(twin(X), expected)
            assert_nothing_is_left_on_instance(twin)


def assert_nothing_is_left_on_instance(module: Module) -> None:
    assert not module._forward_hooks
    assert not module._forward_pre_hooks
    assert "_compiled_call_impl" not in vars(module)


def test_a_model_that_the_script_drops_is_freed(install: Install) -> None:
    install(OptimizerSteps(), ForwardCalls())
    model = Block()
    optimizer = make_optimizer(model)
    model(X).sum().backward()
    optimizer.step()
    references = [weakref.ref(model), weakref.ref(optimizer)]
    del model, optimizer
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_scripted_and_traced_modules_are_seen(install: Install) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        models = (torch.jit.trace(Block(), X), torch.jit.script(Block()))
    for model in models:
        finder, listener = install(ForwardCalls(), settle_after=2)
        for _ in range(4):
            model(X)
        finder.remove()
        assert len(listener.told) == 4


# -- once the steps are known for good ---------------------------------------------------------


def test_what_is_left_of_an_optimizers_steps_is_one_hook_that_counts(install: Install) -> None:
    explicit = ExplicitSteps()
    finder, listener = install(
        explicit,
        ProfilerSteps(torch_trace.own_profilers),
        OptimizerSteps(),
        ForwardCalls(),
        settle_after=3,
        reduce_after=5,
    )
    model = Block()
    optimizer, other = make_optimizer(model), make_optimizer(model)
    for _ in range(12):
        model(X).sum().backward()
        optimizer.step()
        other.step()
        if listener.counted:
            # Of more trust, and too late.
            explicit.step(None)
    assert (listener.labels, listener.counted) == ([FORWARD] + [SGD] * 4, 12 - 4)
    assert len(optimizer._optimizer_step_post_hooks) == 1
    assert not other._optimizer_step_post_hooks
    # The source of more trust is silent, and has its function back.
    assert_nothing_is_left(model)
    finder.remove()
    assert not optimizer._optimizer_step_post_hooks


def test_what_is_left_of_forward_calls_counts_those_of_one_module(install: Install) -> None:
    finder, listener = install(ForwardCalls(), settle_after=3, reduce_after=4)
    model, other = Block(), Block()
    for _ in range(9):
        other(model(X))
    x = X.clone().requires_grad_()
    # Called again in the backward pass, which is no step.
    checkpoint(model, x, use_reentrant=False).sum().backward()
    assert (listener.labels, listener.counted) == ([FORWARD] * 4, 9 - 4 + 1)
    finder.remove()
    assert_nothing_is_left(model, other)


def test_what_is_left_of_other_marks_counts_them(
    replay: Callable[[object], None], install: Install
) -> None:
    explicit = ExplicitSteps()
    finder, listener = install(explicit, reduce_after=2)
    for _ in range(5):
        explicit.step(7)
    assert (listener.tokens, listener.counted) == ([7, 7], 3)
    finder.remove()
    explicit.step(7)
    assert listener.counted == 3

    finder, listener = install(ProfilerSteps(torch_trace.own_profilers), reduce_after=2)
    for _ in range(5):
        torch.profiler.profile().step()
    assert (len(listener.told), listener.counted) == (2, 3)
    finder.remove()

    nvtx_ranges.install()
    finder, listener = install(RangeSteps("iteration"), reduce_after=2)
    for name in ("iteration", "other") * 5:
        nvtx.push_range(name)
        nvtx.pop_range()
    assert (len(listener.told), listener.counted) == (2, 3)
    finder.remove()

    _, listener = install(GraphReplays(), reduce_after=2)
    graph, other = Graph(), Graph()
    for _ in range(5):
        replay(graph)
        replay(other)
    assert (len(listener.told), listener.counted) == (2, 3)


# -- torch.compile -----------------------------------------------------------------------------


def compiled_module(model: Module) -> Any:
    return torch.compile(model, backend="eager")


def compiled_in_place(model: Module) -> Any:
    model.compile(backend="eager")
    return model


def compiled_function(model: Module) -> Any:
    @torch.compile(backend="eager")
    def call(x: torch.Tensor) -> Any:
        return model(x) * 2

    return call


def compiled_with_a_break(model: Module) -> Any:
    @torch.compile(backend="eager")
    def call(x: torch.Tensor) -> Any:
        x = x + 1
        torch._dynamo.graph_break()
        return model(x) * 2

    return call


def compiled_inner_module(model: Module) -> Any:
    return torch.nn.Sequential(torch.compile(model, backend="eager"), torch.nn.ReLU())


def train(make: Callable[[Module], Any], steps: int = 8) -> dict[str, dict[str, int]]:
    """Train for a few steps; what torch.compile counted while doing so."""
    torch._dynamo.reset()
    counters.clear()
    model = Block()
    optimizer = make_optimizer(model)
    call = make(model)
    for _ in range(steps):
        call(X).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return {
        group: dict(counters[group]) for group in ("frames", "stats", "graph_break", "recompiles")
    }


@pytest.mark.parametrize(
    "make",
    [
        compiled_module,
        compiled_in_place,
        compiled_function,
        compiled_with_a_break,
        compiled_inner_module,
    ],
)
def test_watching_changes_nothing_of_what_is_compiled(
    install: Install, make: Callable[[Module], Any]
) -> None:
    alone = train(make)
    assert alone["frames"]["ok"] >= 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        install(OptimizerSteps(), ForwardCalls(), settle_after=4, reduce_after=6)
        watched = train(make)
    assert watched == alone
    assert [str(warning.message) for warning in caught if "hook" in str(warning.message)] == []


def test_a_compiled_module_marks_the_steps_of_inference(install: Install) -> None:
    torch._dynamo.reset()
    counters.clear()
    _, listener = install(ForwardCalls(), settle_after=3)
    model = compiled_module(Block())
    with torch.no_grad():
        for _ in range(6):
            model(X)
    assert listener.labels == ["forward calls of OptimizedModule"] * 6
    assert counters["frames"]["ok"] == 1


# torch's own use of what it deprecates.
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_an_optimizer_step_that_is_compiled_has_no_more_breaks(install: Install) -> None:
    def run() -> tuple[int, int]:
        torch._dynamo.reset()
        counters.clear()
        model = Block()
        step = torch.compile(make_optimizer(model).step, backend="eager")
        for _ in range(4):
            model(X).sum().backward()
            step()
        return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())

    alone = run()
    _, listener = install(OptimizerSteps())
    assert run() <= alone
    assert listener.told == []
