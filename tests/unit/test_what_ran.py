"""Work is counted by what ran on a CPU, not by what was called: small programs, counted by hand."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from gpuprof.collectors import kineto
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.analyze import analyze

Analyse = Callable[[Callable[[], object]], Analysis]


@pytest.fixture
def analyse(tmp_path: Path) -> Analyse:
    """Profiles one call of a function, after one to warm up."""

    def profiled(step: Callable[[], object]) -> Analysis:
        step()
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
        ) as profiler:
            step()
        path = tmp_path / "trace.json"
        profiler.export_chrome_trace(str(path))
        return analyze(kineto.read(path))

    return profiled


def flops(analysis: Analysis, kind: str = "matmul", phase: str | None = None) -> int:
    return sum(
        part.count
        for op in analysis.ops
        for part in op.flops or ()
        if part.kind == kind and phase in (None, op.phase)
    )


def unmodelled(analysis: Analysis) -> set[str]:
    return {op.name for op in analysis.coverage.unmodelled}


# -- calls that are handed on: vmap, modes, tensor subclasses --------------------------------------

BATCH, ROWS, INNER, OUTER = 16, 4, 8, 6
LEFT, RIGHT = torch.randn(BATCH, ROWS, INNER), torch.randn(BATCH, INNER, OUTER)
SHARED = torch.randn(INNER, OUTER)
PRODUCT = 2 * BATCH * ROWS * INNER * OUTER
QUERY = torch.randn(BATCH, 2, 32, 8)
IMAGE, FILTER = torch.randn(BATCH, 2, 3, 8, 8), torch.randn(4, 3, 3, 3)


def squared(weight: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return (rows @ weight).square().sum()


VMAPPED: dict[str, tuple[Callable[[], object], int]] = {
    "mm": (lambda: torch.vmap(torch.mm)(LEFT, RIGHT), PRODUCT),
    "mm with one weight": (lambda: torch.vmap(lambda rows: rows @ SHARED)(LEFT), PRODUCT),
    "linear": (lambda: torch.vmap(lambda rows: F.linear(rows, SHARED.t()))(LEFT), PRODUCT),
    "mv": (
        lambda: torch.vmap(torch.mv)(LEFT, torch.ones(BATCH, INNER)),
        2 * BATCH * ROWS * INNER,
    ),
    "dot": (
        lambda: torch.vmap(torch.dot)(torch.ones(BATCH, INNER), torch.ones(BATCH, INNER)),
        2 * BATCH * INNER,
    ),
    "attention": (
        lambda: torch.vmap(lambda q: F.scaled_dot_product_attention(q, q, q))(QUERY),
        2 * 2 * BATCH * 2 * 32 * 32 * 8,
    ),
    "convolution": (
        lambda: torch.vmap(lambda x: F.conv2d(x, FILTER))(IMAGE),
        2 * BATCH * 2 * 4 * (3 * 3 * 3) * (6 * 6),
    ),
    # Each sample's gradient: the product forward, and the weight's gradient.
    "gradients of samples": (
        lambda: torch.vmap(torch.func.grad(squared), in_dims=(None, 0))(SHARED, LEFT),
        2 * PRODUCT,
    ),
}


@pytest.mark.parametrize("name", VMAPPED)
def test_vmap_counts_the_whole_batch(analyse: Analyse, name: str) -> None:
    step, expected = VMAPPED[name]
    assert flops(analyse(step)) == expected


def test_vmap_counts_elementwise_work_of_the_whole_batch(analyse: Analyse) -> None:
    assert flops(analyse(lambda: torch.vmap(torch.add)(LEFT, LEFT)), "vector") == LEFT.numel()


def test_a_mode_that_watches_adds_nothing(analyse: Analyse) -> None:
    def step() -> None:
        with FlopCounterMode(display=False):
            torch.mm(LEFT[0], SHARED)

    assert flops(analyse(step)) == 2 * ROWS * INNER * OUTER


@pytest.fixture
def four_ranks() -> Iterator[None]:
    """A world of four, of which this process is one; nothing is sent."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    yield
    dist.destroy_process_group()


# torch 2.6 says so of every mesh of CPUs.
@pytest.mark.filterwarnings("ignore:DTensor random operators")
@pytest.mark.usefixtures("four_ranks")
def test_tensor_parallel_counts_what_this_rank_multiplies(analyse: Analyse) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    rows, width, hidden = 32, 16, 64
    model = nn.Sequential(nn.Linear(width, hidden, bias=False), nn.ReLU(), nn.Linear(hidden, width))
    mesh = init_device_mesh("cpu", (4,))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    inputs = torch.randn(rows, width)
    analysis = analyse(lambda: model(inputs).sum().backward())
    each = 2 * rows * width * hidden // 4
    # Both products forward, two weight gradients, one input gradient.
    assert flops(analysis) == 5 * each
    # To begin a collective and to wait for it is no work, nor is what wraps that.
    assert [name for name in unmodelled(analysis) if not name.startswith("aten::")] == []


# -- nothing computed: checkpointing's early stop, kept results, fake and meta tensors -------------

# Known of torch 2.6 (docs/torch_versions.md).
needs_modes_in_traces = pytest.mark.skipif(
    torch.__version__.startswith("2.6."),
    reason="this torch traces what a Python mode answered as if it had run",
)
WIDTH, TOKENS = 32, 16
LAYER = 2 * TOKENS * WIDTH * WIDTH
X = torch.randn(TOKENS, WIDTH)


def mlp(*, bias: bool = False) -> nn.Module:
    return nn.Sequential(
        nn.Linear(WIDTH, WIDTH, bias=bias), nn.ReLU(), nn.Linear(WIDTH, WIDTH, bias=bias)
    )


def counted_by_torch(step: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        step()
    return int(counter.get_total_flops())


@pytest.mark.parametrize("bias", [False, True])
def test_an_operator_that_early_stop_aborts_did_nothing(analyse: Analyse, bias: bool) -> None:
    model = mlp(bias=bias)

    def step() -> None:
        checkpoint.checkpoint(model, X, use_reentrant=False).sum().backward()

    analysis = analyse(step)
    # The second forward ends at its second product, whose inputs are what was missing.
    assert flops(analysis) == (2 + 1 + 3) * LAYER
    assert flops(analysis, phase="backward") == (1 + 3) * LAYER


def test_without_early_stop_the_second_forward_is_whole(analyse: Analyse) -> None:
    model = mlp()

    def step() -> None:
        with checkpoint.set_checkpoint_early_stop(False):
            checkpoint.checkpoint(model, X, use_reentrant=False).sum().backward()

    assert flops(analyse(step)) == (2 + 2 + 3) * LAYER


def test_an_aborted_convolution_did_nothing(analyse: Analyse) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    image = torch.randn(2, 3, 12, 12)

    def step() -> None:
        checkpoint.checkpoint(model, image, use_reentrant=False).sum().backward()

    assert flops(analyse(step)) == counted_by_torch(step)


def test_an_operator_that_saves_its_result_has_run(analyse: Analyse) -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh())

    def step() -> None:
        checkpoint.checkpoint(model, X, use_reentrant=False).sum().backward()

    analysis = analyse(step)
    assert flops(analysis) == (1 + 1 + 1) * LAYER
    assert sum(op.calls for op in analysis.ops if op.name == "aten::tanh") == 2


@needs_modes_in_traces
def test_products_kept_by_selective_checkpointing_run_once(analyse: Analyse) -> None:
    model = mlp()
    keep = partial(checkpoint.create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])

    def step() -> None:
        checkpoint.checkpoint(model, X, use_reentrant=False, context_fn=keep).sum().backward()

    assert flops(analyse(step)) == (2 + 3) * LAYER


def test_on_the_meta_device_nothing_is_computed(analyse: Analyse) -> None:
    model = nn.Linear(WIDTH, WIDTH, device="meta")
    inputs = torch.randn(TOKENS, WIDTH, device="meta")
    analysis = analyse(lambda: model(inputs).sum().backward())
    assert flops(analysis) == 0
    assert analysis.ops == ()
    assert any("meta device" in sentence for sentence in analysis.warnings)


@needs_modes_in_traces
def test_fake_tensors_compute_nothing(analyse: Analyse) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        model, inputs = nn.Linear(WIDTH, WIDTH), torch.randn(TOKENS, WIDTH)
        assert flops(analyse(lambda: model(inputs).sum().backward())) == 0


def test_compiling_while_profiled_does_not_hide_what_ran(analyse: Analyse) -> None:
    torch._dynamo.reset()
    rows = iter((3, 4))

    @torch.compile(backend="eager", dynamic=False)
    def wave(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    # The second call compiles again: what it traces with fake tensors computes nothing.
    analysis = analyse(lambda: wave(torch.ones(next(rows))))
    calls = {op.name: op.calls for op in analysis.ops}
    assert calls["aten::sin"] == 1
    assert not any("compile_inner" in name or "dynamo" in name for name in calls)
    assert not any("meta device" in sentence for sentence in analysis.warnings)


# -- layouts ---------------------------------------------------------------------------------------

SIZE, COLUMNS = 64, 8
DENSE = torch.where(torch.rand(SIZE, SIZE) < 0.1, torch.randn(SIZE, SIZE), torch.zeros(()))
NONZERO = int((DENSE != 0).sum())
FEATURES, VECTOR = torch.randn(SIZE, COLUMNS), torch.randn(SIZE)
LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "coo": lambda: DENSE.to_sparse_coo().coalesce(),
    "csr": DENSE.to_sparse_csr,
    "csc": DENSE.to_sparse_csc,
    "bsr": lambda: DENSE.to_sparse_bsr((8, 8)),
    "bsc": lambda: DENSE.to_sparse_bsc((8, 8)),
}
PRODUCTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "matmul": lambda sparse: sparse @ FEATURES,
    "from the right": lambda sparse: FEATURES.t() @ sparse,
    "mv": lambda sparse: sparse @ VECTOR,
    "addmm": lambda sparse: torch.addmm(torch.ones(SIZE, COLUMNS), sparse, FEATURES),
    "sparse.mm": lambda sparse: torch.sparse.mm(sparse, FEATURES),
    "linear": lambda sparse: F.linear(FEATURES.t(), sparse),
    "both sparse": lambda sparse: sparse @ sparse,
}
# What torch has no kernel for on a CPU.
NOT_IN_TORCH = {
    *(("bsc", name) for name in PRODUCTS if name != "from the right"),
    *(("bsr", name) for name in ("from the right", "both sparse")),
}


SPARSE_PRODUCTS = [
    (layout, name) for layout in LAYOUTS for name in PRODUCTS if (layout, name) not in NOT_IN_TORCH
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("layout", "product"), SPARSE_PRODUCTS)
def test_a_sparse_product_is_unknown(analyse: Analyse, layout: str, product: str) -> None:
    matrix = LAYOUTS[layout]()
    analysis = analyse(lambda: PRODUCTS[product](matrix))
    assert flops(analysis) == 0
    assert unmodelled(analysis) & {"aten::addmm", "aten::addmv", "aten::mm"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_elementwise_work_is_never_that_of_a_dense_tensor(analyse: Analyse, layout: str) -> None:
    matrix = LAYOUTS[layout]()
    stored = matrix.values().numel()
    for step in (lambda: matrix * 2.0, lambda: torch.relu(matrix), lambda: matrix + matrix):
        assert flops(analyse(step), "vector") in (0, stored)


def test_a_batched_sparse_product_is_unknown(analyse: Analyse) -> None:
    batch = torch.stack([DENSE, DENSE]).to_sparse_coo()
    analysis = analyse(lambda: torch.bmm(batch, torch.randn(2, SIZE, COLUMNS)))
    assert flops(analysis) == 0
    assert "aten::bmm" in unmodelled(analysis)


def test_the_backward_of_a_sparse_product_is_unknown_too(analyse: Analyse) -> None:
    matrix = LAYOUTS["coo"]()
    features = FEATURES.clone().requires_grad_()
    analysis = analyse(lambda: torch.sparse.mm(matrix, features).sum().backward())
    assert flops(analysis) == 0
    assert {op.phase for op in analysis.ops if op.name == "aten::addmm"} == {"forward", "backward"}


def test_a_dense_gradient_that_is_masked_afterwards_was_a_dense_product(analyse: Analyse) -> None:
    matrix = LAYOUTS["coo"]().requires_grad_()
    analysis = analyse(lambda: torch.sparse.mm(matrix, FEATURES).sum().backward())
    assert flops(analysis) == 2 * SIZE * SIZE * COLUMNS


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without mkldnn")
@pytest.mark.filterwarnings("ignore")
def test_mkldnn_tensors_are_dense(analyse: Analyse) -> None:
    # Imported here: it warns of what torch itself uses.
    from torch.utils import mkldnn

    linear = mkldnn.to_mkldnn(nn.Linear(WIDTH, WIDTH).eval())
    rows = X.to_mkldnn()
    with torch.no_grad():
        analysis = analyse(lambda: torch.relu(linear(rows)))
    assert flops(analysis) == LAYER
    assert flops(analysis, "vector") == X.numel()


# -- what operators do beside those that they call -------------------------------------------------


@torch.library.custom_op("gpuprof_test::block", mutates_args=())
def block(x: torch.Tensor) -> torch.Tensor:
    """A relu, and work that leaves no event."""
    result = torch.relu(x)
    total = 0.0
    for value in range(100_000):
        total += value
    return result


def test_a_custom_operators_own_work_is_named(analyse: Analyse) -> None:
    analysis = analyse(lambda: block(X))
    (own,) = [op for op in analysis.ops if op.name == "gpuprof_test::block"]
    assert own.calls == 1
    assert own.flops is None
    assert own.device_fraction > 0.5
    assert "what gpuprof_test::block does itself" in own.bottleneck.evidence
    assert "gpuprof_test::block" in unmodelled(analysis)
    # The operator below it keeps what it did.
    assert flops(analysis, "vector") == X.numel()


def test_an_operator_of_torch_may_work_itself(analyse: Analyse) -> None:
    matrix = torch.randn(300, 300)
    assert "aten::_linalg_svd" in unmodelled(analyse(lambda: torch.linalg.svd(matrix)))


@pytest.mark.filterwarnings("ignore")
def test_generated_code_of_a_compiled_region_is_work(analyse: Analyse) -> None:
    layer = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(layer(x)).square() + x.cos()

    compiled = torch.compile(forward)
    rows = torch.randn(20_000, WIDTH)
    with torch.inference_mode():
        analysis = analyse(lambda: compiled(rows))
    assert flops(analysis) == 2 * 20_000 * WIDTH * WIDTH
    assert any(name.startswith("Torch-Compiled Region") for name in unmodelled(analysis))
