"""Lines and modules of operators, compared with what a dispatch mode and hooks see."""

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import placed_model
import polars as pl
import pytest
import torch
from placed_model import Model, training_step
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from gpuprof.collectors import kineto, schema
from gpuprof.collectors.call_tree.autograd_nodes import are_nodes
from gpuprof.collectors.call_tree.program_places import with_positions
from gpuprof.collectors.errors import CollectorError
from gpuprof.collectors.live import program_positions
from gpuprof.collectors.live.module_paths import module_paths
from gpuprof.collectors.live.program_positions import ProgramPositions
from gpuprof.collectors.live.torch_trace import TorchTrace
from gpuprof.collectors.stacks import frame_text, installed_name

_FILE = Path(placed_model.__file__).name
# Each is called once by what the model calls, in the trace and below every mode.
_OPERATORS = ("aten::mm", "aten::sigmoid", "aten::add", "aten::mul", "aten::exp")


def recorded(step: Callable[[], None], folder: Path, *, whole_stacks: bool = False) -> pl.DataFrame:
    """The operators of `step` with their places."""
    trace = TorchTrace(folder / "trace.json", steps=None)
    recorder = ProgramPositions(whole_stacks=whole_stacks)
    trace.start()
    recorder.start()
    step()
    positions = recorder.stop()["positions"]
    trace.stop()
    capture = kineto.read(trace.export(), advise=False)
    process = capture.ops["process"][0]
    rows = [{**row, "process": process, "rank": 0} for row in positions]
    return with_positions(capture.ops, pl.DataFrame(rows, schema=schema.POSITIONS))


def file_names(ops: pl.DataFrame) -> pl.DataFrame:
    return ops.with_columns(pl.col("file").str.split("/").list.last())


def counted(ops: pl.DataFrame, *, backward: bool) -> Counter[tuple[str, int | None, str | None]]:
    """How often each of `_OPERATORS` comes from which line of the model's file and module."""
    below: list[bool] = []
    for node, parent in zip(are_nodes(ops["name"]), ops["parent_id"], strict=True):
        below.append(bool(node) or (parent is not None and below[parent]))
    chosen = file_names(ops).filter(
        pl.col("name").is_in(_OPERATORS),
        pl.Series(below) == backward,
        pl.col("file") == _FILE,
    )
    return Counter(chosen.select("name", "line", "module").iter_rows())


class Seen(TorchDispatchMode):
    """What Python calls: the operator, the line in the model's file, and the module by hooks."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[tuple[str, int | None, str | None]] = Counter()
        self._inside: list[str] = []
        for name, module in model.named_modules():
            path = name or type(model).__name__
            module.register_forward_pre_hook(lambda *_, path=path: self._inside.append(path))
            module.register_forward_hook(lambda *_: self._inside.pop() and None)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_name != "_engine_run_backward":
            if Path(frame.f_code.co_filename).name == _FILE:
                module = self._inside[-1] if self._inside else None
                self.counts[func._schema.name, frame.f_lineno, module] += 1
                break
            frame = frame.f_back
        return func(*args, **(kwargs or {}))


def test_each_operator_has_the_line_and_module_that_a_dispatch_mode_and_hooks_see(
    tmp_path: Path,
) -> None:
    ops = recorded(training_step(Model()), tmp_path)
    seen = Seen(model := Model())
    with seen:
        training_step(model)()
    # The gradient of the custom function is Python's, too; the trace has it below a node.
    expected = Counter({key: n for key, n in seen.counts.items() if key[0] in _OPERATORS})
    (custom,) = [key for key in expected if key[0] == "aten::mul" and key[2] is None]
    del expected[custom]
    assert sum(expected.values()) >= 15
    assert counted(ops, backward=False) == expected
    backward = counted(ops, backward=True)
    # Its line is its own, its module that of the call which it differentiates.
    assert backward[custom[0], custom[1], "Model"] == 1


def test_a_backward_operator_has_the_line_and_module_of_its_forward(tmp_path: Path) -> None:
    ops = recorded(training_step(Model()), tmp_path)
    forward, backward = (counted(ops, backward=which) for which in (False, True))
    products = {key: n for key, n in forward.items() if key[0] == "aten::mm"}
    assert len(products) == 5
    for key, calls in products.items():
        # The input needs no gradient, so the first product has one and the others have two.
        first = calls if key[2] != "blocks.0.up" else calls / 2
        assert backward[key] in (2 * calls, 2 * calls - 1), (key, first)
    loss = file_names(ops).filter(pl.col("name").str.starts_with("aten::mse_loss_backward"))
    assert set(loss["module"]) == {"MSELoss"}
    # Gradients are added up by autograd while this line waits for it.
    waits = file_names(ops).filter(pl.col("name").str.contains("AccumulateGrad"))
    (line,) = set(waits["line"])
    assert "loss.backward()" in Path(placed_model.__file__).read_text().splitlines()[line - 1]


def test_what_checkpointing_repeats_is_where_it_was_called_first(tmp_path: Path) -> None:
    plain = recorded(training_step(Model()), tmp_path)
    repeated = recorded(training_step(Model(checkpointed=True)), tmp_path)
    once, twice = (counted(ops, backward=True) for ops in (plain, repeated))
    forward = counted(plain, backward=False)
    for key in forward:
        # What is repeated lies below a node, and the head and the last call are not.
        if key[0] == "aten::sigmoid":
            assert twice[key] == 1
        if key[0] == "aten::mm" and key[2] == "blocks.1.up":
            assert twice[key] == once[key] + 1


# Of dynamo, where it traces a custom function.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_nothing_is_compiled_or_broken_for_it(tmp_path: Path) -> None:
    counters = torch._dynamo.utils.counters
    torch._dynamo.reset()
    step = training_step(torch.compile(Model(), backend="eager"))
    step()
    before = {name: dict(counts) for name, counts in counters.items()}
    ops = recorded(step, tmp_path)
    assert {name: dict(counts) for name, counts in counters.items()} == before
    products = file_names(ops.filter(pl.col("name") == "aten::mm"))
    # The function is known; the code in its place has no lines of it.
    assert set(products["function"]) == {"Model.forward"}
    assert set(products["module"]) == {"Model"}
    assert products["line"].null_count() == products.height
    torch._dynamo.reset()


def test_where_functions_are_called_all_the_time_nothing_more_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step() -> None:
        torch.sigmoid(torch.ones(4))
        sum(value * 2 for value in range(3_000))
        torch.exp(torch.ones(4))

    monkeypatch.setattr(program_positions, "_FREE_EVENTS", 1_000)
    monkeypatch.setattr(program_positions, "_MOST_OF_THE_TIME", 0.0)
    ops = recorded(step, tmp_path)
    assert sys.gettrace() is None
    lines = dict(ops.select("name", "line").iter_rows())
    assert lines["aten::sigmoid"] is not None
    assert lines["aten::exp"] is None
    # As long as they may take what they take, it goes on.
    monkeypatch.setattr(program_positions, "_MOST_OF_THE_TIME", float("inf"))
    lines = dict(recorded(step, tmp_path).select("name", "line").iter_rows())
    assert lines["aten::exp"] == lines["aten::sigmoid"] + 2


def test_the_step_after_a_set_up_has_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    def lines_after(*, of_another_thread: bool) -> set[int]:
        recorder = ProgramPositions()
        recorder.start()
        sum(value * 2 for value in range(3_000))
        assert sys.gettrace() is None
        if of_another_thread:
            thread = threading.Thread(target=recorder.step_begins)
            thread.start()
            thread.join()
        else:
            monkeypatch.setattr(program_positions, "_MOST_OF_THE_TIME", float("inf"))
            recorder.step_begins()
        placed_model.scaled(torch.ones(1))
        rows = recorder.stop()["positions"]
        assert all(row["start_ns"] <= row["end_ns"] for row in rows)
        return {row["line"] for row in rows if row.get("function") == "scaled"}

    monkeypatch.setattr(program_positions, "_FREE_EVENTS", 1_000)
    monkeypatch.setattr(program_positions, "_MOST_OF_THE_TIME", 0.0)
    assert lines_after(of_another_thread=True) == set()
    assert lines_after(of_another_thread=False) != set()


def test_another_tool_that_traces_is_left_alone() -> None:
    def tracer(*_: Any) -> Any:
        return None

    sys.settrace(tracer)
    try:
        with pytest.raises(CollectorError, match="settrace"):
            ProgramPositions().start()
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(None)


def test_a_thread_that_another_one_ended_is_followed_no_longer() -> None:
    recorder = ProgramPositions()
    started, ended, traced = threading.Event(), threading.Event(), []

    def program() -> None:
        recorder.start()
        started.set()
        ended.wait()
        placed_model.scaled(torch.ones(1))
        traced.append(sys.gettrace())

    thread = threading.Thread(target=program)
    thread.start()
    started.wait()
    recorder.stop()
    ended.set()
    thread.join()
    assert traced == [None]


def test_a_forked_child_is_not_followed() -> None:
    recorder = ProgramPositions()
    recorder.start()
    child = os.fork()
    if child == 0:
        os._exit(0 if sys.gettrace() is None else 1)
    assert sys.gettrace() is not None
    recorder.stop()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_program_that_traces_itself_meanwhile_hides_the_rest() -> None:
    recorder = ProgramPositions()
    recorder.start()
    sys.settrace(None)
    rows = recorder.stop()["positions"]
    assert rows[-1].get("file") is None


def test_paths_are_those_of_the_model_and_wrappers_leave_no_trace() -> None:
    class DistributedDataParallel(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

    model, loss = Model(), nn.MSELoss()
    wanted = [model, model.get_submodule("blocks.1.up"), model.head, loss]
    plain = ["Model", "blocks.1.up", "head", "MSELoss"]
    alive: list[nn.Module] = [*model.modules(), loss]
    assert module_paths(wanted, alive) == plain
    compiled: Any = torch.compile(model, backend="eager")
    assert module_paths(wanted, [*alive, compiled]) == plain
    wrapped = DistributedDataParallel(compiled)
    assert module_paths([wrapped, *wanted], [*alive, compiled, wrapped]) == ["Model", *plain]
    # One that does not take part changes nothing.
    assert module_paths(wanted, [*alive, nn.Linear(2, 2)]) == plain


def test_paths_of_several_models_begin_with_their_class() -> None:
    one, two, other = Model(), Model(), nn.Linear(2, 2)
    called = [one.head, two, two.head, other]
    assert module_paths(called, [*one.modules(), *two.modules(), other]) == [
        *("Model.head", "Model#2", "Model#2.head"),
        "Linear",
    ]


def test_a_module_used_at_two_places_has_the_first_path() -> None:
    model = nn.Sequential(shared := nn.Linear(2, 2), nn.ReLU(), shared)
    # A number alone would say nothing.
    assert module_paths([shared], [model]) == ["Sequential.0"]


def test_whole_stacks_are_those_that_python_has(tmp_path: Path) -> None:
    """Those of a dispatch mode; of the innermost function of torch the line is not known."""
    step = training_step(Model())
    seen: list[tuple[str, list[str]]] = []

    class Walking(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            frames: list[str] = []
            frame: FrameType | None = sys._getframe(1)
            while frame is not None and frame.f_code is not step.__code__:
                name = installed_name(frame.f_code.co_filename)
                # Around the call of the mode.
                if not name.startswith(("torch/_dynamo/", "torch/_compile.py")):
                    frames.append(frame_text(name, frame.f_lineno, frame.f_code.co_name))
                frame = frame.f_back
            seen.append((func._schema.name, frames))
            return func(*args, **(kwargs or {}))

    step()
    with Walking():  # type: ignore[no-untyped-call]
        step()
    ops = recorded(step, tmp_path, whole_stacks=True)
    found: dict[str, list[list[str]]] = {}
    for name, stack in ops.select("name", "stack").iter_rows():
        frames = [] if stack is None else stack.splitlines()
        below = next((place for place, one in enumerate(frames) if one.endswith(".step")), 0)
        found.setdefault(name, []).append(frames[:below])
    for name, forward in (("aten::mm", 7), ("aten::sigmoid", 3), ("aten::exp", 1)):
        expected = [frames for operator, frames in seen if operator == name][:forward]
        assert len(expected) == forward
        for walked, frames in zip(expected, found[name][:forward], strict=True):
            for theirs, ours in zip(walked, frames, strict=True):
                place, _, function = ours.partition(" ")
                file, _, line = place.rpartition(":")
                assert theirs.partition(" ")[2] == function.rpartition(".")[2]
                assert theirs.partition(":")[0].endswith(file)
                known = line == theirs.partition(" ")[0].rpartition(":")[2]
                assert known or (line == "?" and ours is frames[0])
