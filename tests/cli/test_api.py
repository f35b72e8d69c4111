"""The Python API in real processes, and the example's FLOPs and MFU against closed forms."""

import gc
import importlib.util
import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from fork_server import ForkServer

import gpuprof
from gpuprof.collectors import storage
from gpuprof.roofline.analysis import Analysis, RooflinePoint

ROOT = Path(__file__).parents[2]
Gpuprof = Callable[..., "subprocess.CompletedProcess[str]"]
Python = Callable[[str], "subprocess.CompletedProcess[str]"]

TRAINING = """
import json, os, sys, torch, gpuprof
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        with gpuprof.region("forward", flops=65536, bytes=1000):
            y = model(torch.randn(8, 64))
        y.sum().backward()
        optimizer.step()
def tell(profiled):
    steps = profiled.analysis and profiled.analysis.steps
    print(json.dumps(steps and [steps.found_by, steps.timed, steps.profiled]))
"""


@pytest.fixture
def python(tmp_path: Path, gpuprof_environment: dict[str, str], server: ForkServer) -> Python:
    """Run TRAINING and then a script in the test's own folder."""

    def run(source: str) -> "subprocess.CompletedProcess[str]":
        (tmp_path / "script.py").write_text(TRAINING + textwrap.dedent(source))
        return server.run(
            "script.py",
            folder=tmp_path,
            environment={**gpuprof_environment, "KINETO_LOG_LEVEL": "99"},
        )

    return run


@pytest.mark.parametrize("failure", ["ValueError", "polars.exceptions.PanicException"])
def test_a_capture_that_cannot_be_analysed_is_stored(
    tmp_path: Path, python: Python, failure: str
) -> None:
    done = python(f"""
        import polars
        from gpuprof.profiler.run import store_recorded
        def fail(_): raise {failure}("no window")
        store_recorded.analyze = fail
        with gpuprof.profile("out.gpuprof", warmup=1, timed=3, profiled=2) as profiled:
            train(12)
        tell(profiled)
        """)
    assert (done.returncode, done.stdout) == (0, "null\n")
    assert done.stderr.startswith("gpuprof: out.gpuprof is stored, and could not be analysed")
    assert done.stderr.count("\n") == 1
    assert done.stderr.count("no window; gpuprof summary out.gpuprof tries again") == 1
    assert gpuprof.analyze(storage.load(tmp_path / "out.gpuprof")).steps.timed == 3


def test_a_block_is_profiled_and_stored(tmp_path: Path, python: Python) -> None:
    done = python("""
        with gpuprof.profile("out.gpuprof", warmup=1, timed=3, profiled=2) as profiled:
            train(12)
        tell(profiled)
        print(profiled.output, profiled.capture.kernels.height > 0)
        """)
    assert (done.returncode, done.stderr) == (0, "")
    told, stored = done.stdout.splitlines()
    assert json.loads(told) == ["optimizer steps (SGD)", 3, 2]
    assert stored == "out.gpuprof True"
    capture = storage.load(tmp_path / "out.gpuprof")
    assert (capture.manifest.source, capture.manifest.title) == ("gpuprof.profile", "out")
    assert capture.processes[0].ending == "finished"
    (region,) = (point for point in gpuprof.analyze(capture).ranges if point.detail == "region")
    assert (region.name, region.calls) == ("forward", 2)
    assert (region.total_flops, region.total_bytes) == (2 * 65536, 2000)


def test_a_decorated_function_is_profiled_also_where_it_recurses(
    tmp_path: Path, python: Python
) -> None:
    done = python("""
        profiled = gpuprof.profile("out.gpuprof", warmup=1, timed=3, profiled=2)
        @profiled
        def work(depth, *, steps):
            \"\"\"Train.\"\"\"
            if depth:
                return work(depth - 1, steps=steps) + 1
            train(steps // 2)
            assert profiled.analysis is None
            train(steps // 2)
            return 0
        print(work(3, steps=12), work.__name__, work.__doc__)
        tell(profiled)
        """)
    assert (done.returncode, done.stderr) == (0, "")
    result, told = done.stdout.splitlines()
    assert result == "3 work Train."
    assert json.loads(told) == ["optimizer steps (SGD)", 3, 2]


def test_explicit_steps_and_tokens_are_used(tmp_path: Path, python: Python) -> None:
    done = python("""
        gpuprof.step(tokens=1)
        with gpuprof.profile("out.gpuprof", warmup=1, timed=3, profiled=1) as profiled:
            for _ in range(8):
                train(2)
                gpuprof.step(tokens=4096)
        tell(profiled)
        print(profiled.analysis.steps.tokens_per_s * profiled.analysis.steps.median_ns / 1e9)
        """)
    assert (done.returncode, done.stderr) == (0, "")
    told, tokens = done.stdout.splitlines()
    assert json.loads(told) == ["gpuprof.step() calls", 3, 1]
    assert float(tokens) == pytest.approx(4096)


def test_an_exception_inside_keeps_the_capture_and_goes_on(tmp_path: Path, python: Python) -> None:
    done = python("""
        with gpuprof.profile("out.gpuprof", warmup=1, timed=2, profiled=1):
            train(9)
            torch.optim.SGD(model.weight, lr=0.1)
        """)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("TypeError: params argument")
    process = storage.load(tmp_path / "out.gpuprof").processes[0]
    assert (process.ending, process.exit_code) == ("exception", 1)


def test_a_block_inside_gpuprof_run_joins_it(tmp_path: Path, gpuprof: Gpuprof) -> None:
    (tmp_path / "script.py").write_text(
        TRAINING
        + "with gpuprof.profile('inner.gpuprof') as profiled:\n"
        + "    with gpuprof.profile('innermost.gpuprof'): train(10)\n"
        + "    train(10)\n"
        + "tell(profiled)\nprint(profiled.capture)\n"
    )
    ours = gpuprof("run", "-q", "-o", "out.gpuprof", "script.py")
    assert (ours.returncode, ours.stdout, ours.stderr) == (0, "null\nNone\n", "")
    assert not list(tmp_path.glob("inner*"))
    assert storage.load(tmp_path / "out.gpuprof").steps["phase"].to_list().count("timed") == 10


def test_a_forked_child_that_leaves_the_block_stores_nothing(
    tmp_path: Path, python: Python
) -> None:
    done = python("""
        with gpuprof.profile("out.gpuprof", warmup=1, timed=3, profiled=2) as profiled:
            train(12)
            child = os.fork()
            if child:
                os.waitpid(child, 0)
        if not child:
            os._exit(0 if os.listdir("out.gpuprof") and profiled.analysis is None else 1)
        tell(profiled)
        """)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == ["optimizer steps (SGD)", 3, 2]
    (process,) = storage.load(tmp_path / "out.gpuprof").processes
    assert process.ending == "finished"


def test_marks_do_nothing_where_nothing_records(python: Python) -> None:
    done = python("""
        train(2)
        gpuprof.step(tokens=5)
        with torch.profiler.profile() as theirs, gpuprof.region("mine"):
            pass
        print(any(event.key == "mine" for event in theirs.key_averages()))
        """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"steps": "optimiser"}, "steps is 'optimiser'; give one of explicit, profiler"),
        ({"steps": "range"}, "needs step_range"),
        ({"warmup": -1}, "warmup is -1"),
        ({"profiled": -3}, "profiled is -3"),
    ],
)
def test_steps_that_do_not_exist_are_refused(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(gpuprof.CommandError, match=complaint):
        gpuprof.profile(**options)  # type: ignore[arg-type]


def test_an_existing_capture_is_refused_before_the_block_runs(tmp_path: Path) -> None:
    (tmp_path / "out.gpuprof").mkdir()
    ran = []
    with pytest.raises(gpuprof.CommandError, match="exists"):
        with gpuprof.profile(tmp_path / "out.gpuprof"):
            ran.append(1)
    assert ran == []


def test_negative_counts_of_a_region_are_refused() -> None:
    with pytest.raises(gpuprof.CommandError, match="region 'x': flops is -1"):
        with gpuprof.region("x", flops=-1):
            pass


# -- the example -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "train_transformer", ROOT / "examples" / "train_transformer.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def analysis(
    example: ModuleType, cache_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Analysis:
    """The example on the CPU: one warm-up, two timed, two profiled steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example.torch.cuda, "is_available", lambda: False)
        patch.setenv("XDG_CACHE_HOME", str(cache_folder))
        output = tmp_path_factory.mktemp("example") / "example.gpuprof"
        # Models that other tests of this process keep would be others of the program.
        gc.freeze()
        try:
            with gpuprof.profile(output, warmup=1, timed=2, profiled=2) as profiled:
                example.train(7)
        finally:
            gc.unfreeze()
    assert profiled.analysis is not None
    return profiled.analysis


def matmul_flops(points: tuple[RooflinePoint, ...], phase: str) -> tuple[int, int]:
    """Matmul FLOPs of one step in `phase`: in attention and elsewhere."""
    attention = others = 0
    for op in points:
        if op.phase != phase:
            continue
        count = sum(part.count for part in op.flops or () if part.kind == "matmul")
        if "attention" in op.name:
            attention += count
        else:
            others += count
    assert attention % 2 == others % 2 == 0
    return attention // 2, others // 2


def test_flops_of_the_example_equal_the_closed_form(
    example: ModuleType, analysis: Analysis
) -> None:
    size = example.CPU_SIZE
    assert analysis.steps.profiled == 2
    # Attention with the pairs that the causal mask keeps, where the closed form counts all.
    product = 2 * size.batch * size.sequence**2 * size.hidden * size.layers
    kept = product * (size.sequence + 1) // (2 * size.sequence)
    for phase, closed_form, products in zip(
        ("forward", "backward"), example.matmul_flops(size), (2, 5), strict=True
    ):
        attention, others = matmul_flops(analysis.ops, phase)
        assert attention == products * kept
        assert others + products * product == closed_form
    assert matmul_flops(analysis.ops, "optimizer") == (0, 0)
    assert matmul_flops(analysis.ops, "") == (0, 0)


def test_mfu_of_the_example_is_flops_over_time_over_peak(
    example: ModuleType, analysis: Analysis
) -> None:
    use = analysis.utilization
    assert use is not None
    # The closed form has the scores that the backward recomputes, a product a layer.
    size = example.CPU_SIZE
    again = 2 * size.batch * size.sequence**2 * size.hidden * size.layers
    assert use.hardware_flops == sum(example.matmul_flops(size))
    assert use.model_flops == use.hardware_flops - again
    first, second = analysis.steps.samples_ns
    assert use.step_ns == round((first + second) / 2)
    # The rate that the calibration of this test session says.
    assert use.peak is not None
    assert (use.precision, use.peak.rate, use.peak.source) == ("fp32", 1e11, "measured")
    by_hand = use.model_flops / (use.step_ns / 1e9) / 1e11
    assert use.mfu == pytest.approx(by_hand, rel=1e-12)


def test_the_closed_form_of_the_example_is_explained_to_the_last_flop(
    example: ModuleType, analysis: Analysis
) -> None:
    size, form = example.CPU_SIZE, analysis.closed_form
    assert form is not None
    tokens = size.batch * size.sequence
    norms = (2 * size.layers + 1) * size.hidden
    embedding = size.vocabulary * size.hidden
    weights = size.layers * (4 * size.hidden**2 + 3 * size.hidden * size.feed_forward) + embedding
    assert (form.formula, form.tokens) == ("6 N D + 12 L H Q T D", tokens)
    assert form.parameters == weights + embedding + norms
    assert form.attention_flops == 12 * size.layers * size.hidden * size.sequence * tokens
    assert sorted(difference.flops for difference in form.differences) == [
        -6 * embedding * tokens,
        -6 * norms * tokens,
    ]
    assert form.unexplained == 0
    assert analysis.utilization is not None
    assert form.counted == analysis.utilization.model_flops


def test_all_device_work_of_the_example_has_an_operator_and_a_model(analysis: Analysis) -> None:
    coverage = analysis.coverage
    assert coverage.with_op == 1
    assert coverage.with_flops is not None
    assert coverage.with_flops > 0.99, coverage.unmodelled
    assert analysis.split is not None
    assert {op.phase for op in analysis.ops} >= {"forward", "backward", "optimizer"}
