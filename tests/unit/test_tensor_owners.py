"""What holds memory, to the byte, and what a recorder of it and of failures writes down."""

import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from capture_builder import CaptureBuilder
from torch import nn
from torch._subclasses import FakeTensorMode

from gpuprof.collectors import schema
from gpuprof.collectors.live import cpp_log_level, cuda, memory_blocks, out_of_memory
from gpuprof.collectors.live.collected import table_of
from gpuprof.collectors.live.collector import Scope
from gpuprof.collectors.live.memory_blocks import MemoryBlocks
from gpuprof.collectors.live.module_paths import module_paths
from gpuprof.collectors.live.tensor_owners import HeldStorage, gradient_storages, held_storages
from gpuprof.collectors.memory_segments import Stacks, block_rows
from gpuprof.roofline.memory.use import memory_use

# Of a model of 10 x 20 with a bias and a buffer, in float32.
PARAMETER_BYTES = 4 * (10 * 20 + 20)
MB = 1 << 20


class Model(nn.Module):
    """One product, a buffer, and a second name of the product's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.product = nn.Linear(10, 20)
        self.tied = self.product.weight
        self.register_buffer("seen", torch.zeros(3))


@pytest.fixture
def trained() -> tuple[Model, torch.optim.Adam]:
    """A model after one step of Adam, with its gradients."""
    model = Model()
    optimizer = torch.optim.Adam(model.parameters())
    model.product(torch.randn(5, 10)).sum().backward()
    optimizer.step()
    return model, optimizer


def bytes_by_category(objects: list[Any]) -> Counter[str]:
    """Of the storages that are held among `objects`."""
    sizes: Counter[str] = Counter()
    for held in held_storages(objects):
        sizes[held.category] += held.bytes
    return sizes


def test_a_model_with_adam_is_told_apart_to_the_byte(
    trained: tuple[Model, torch.optim.Adam],
) -> None:
    model, optimizer = trained
    view = model.product.weight[2:]
    loose = torch.zeros(7)
    assert bytes_by_category([loose, view, model, model.product, optimizer]) == {
        "parameter": PARAMETER_BYTES,
        "gradient": PARAMETER_BYTES,
        # Two moments, and a step of 4 bytes for each of two parameters.
        "optimizer state": 2 * PARAMETER_BYTES + 8,
        "buffer": 12,
        "tensor": 28,
    }
    names = {held.name for held in held_storages([model, optimizer])}
    assert {"tied", "product.bias", "seen", "Adam"} <= names


def test_nested_state_and_lists_of_it_are_found() -> None:
    optimizer = torch.optim.LBFGS([torch.zeros(4)])
    optimizer.state["any"] = {"old": [torch.zeros(6), {"deep": torch.zeros(5)}], "n": 3}
    assert bytes_by_category([optimizer]) == {"parameter": 16, "optimizer state": 44}


class Refusing(torch.Tensor):
    """A tensor that answers to nothing."""

    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("not on this tensor")


def test_tensors_that_refuse_or_hold_nothing_cost_only_themselves() -> None:
    refusing = torch.zeros(9).as_subclass(Refusing)
    objects = [refusing, torch.empty(0), torch.empty(8, device="meta"), torch.zeros(2)]
    objects.append(torch.zeros(4).to_sparse())
    assert bytes_by_category(objects)["tensor"] == 8 + 36


def test_a_compilers_tensors_are_looked_at_without_a_warning() -> None:
    with FakeTensorMode():
        fake = torch.ones(3, requires_grad=True)
        fake.sum().backward()
    optimizer = torch.optim.SGD([fake])
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = held_storages([fake, optimizer, torch.zeros(2)])
        assert gradient_storages(optimizer) == []
    assert [held.bytes for held in found] == [8]
    assert warned == []


class Renaming(nn.Module):
    """Defines in its own way what torch asks of a module."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 3)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    parameters = named_buffers = named_parameters


def test_a_model_that_lists_its_parameters_in_its_own_way_has_them_all() -> None:
    model = Renaming()
    names = {held.name: held.bytes for held in held_storages([model, model.inner])}
    assert names == {"inner.weight": 24, "inner.bias": 12}
    assert module_paths([model.inner], [model]) == ["inner"]


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_parameters_of_a_scripted_and_of_a_compiled_model_have_their_names() -> None:
    plain = nn.Sequential(nn.Linear(2, 3))
    wrapped: Any = torch.compile(plain)
    assert {held.name for held in held_storages([wrapped, plain, plain[0]])} >= {
        "0.weight",
        "0.bias",
    }
    scripted = torch.jit.script(plain)
    assert {held.name for held in held_storages([scripted])} == {"0.weight", "0.bias"}


def test_an_optimizer_that_cannot_be_read_steps_all_the_same() -> None:
    class Odd(torch.optim.SGD):
        @property
        def param_groups(self) -> Any:
            if looked_at:
                raise RuntimeError("not now")
            return self.groups

        @param_groups.setter
        def param_groups(self, groups: Any) -> None:
            self.groups = groups

    looked_at: list[bool] = []
    optimizer = Odd([torch.zeros(1)])
    recorder = MemoryBlocks()
    recorder.start()
    looked_at.append(True)
    try:
        with pytest.raises(RuntimeError, match="not now"):
            _ = optimizer.param_groups
        # The same error, in our hook, must not reach the program.
        recorder._before_a_step(optimizer, (), {})
    finally:
        looked_at.clear()
        rows = recorder.stop()
    assert "memory_blocks" in rows


def test_a_parameter_that_refuses_costs_no_other_its_gradient() -> None:
    plain = torch.ones(3, requires_grad=True)
    plain.sum().backward()
    computed = plain * 2
    optimizer = torch.optim.SGD([plain])
    optimizer.param_groups[0]["params"] += [torch.zeros(5).as_subclass(Refusing), computed]
    assert bytes_by_category([optimizer]) == {"parameter": 12 + 20 + 12, "gradient": 12}
    assert [held.bytes for held in gradient_storages(optimizer)] == [12]


def test_gradients_are_noted_before_a_step_gives_them_back(
    trained: tuple[Model, torch.optim.Adam],
) -> None:
    model, optimizer = trained
    recorder = MemoryBlocks()
    recorder.start()
    optimizer.step()
    optimizer.zero_grad()
    rows = recorder.stop()["memory_blocks"]
    optimizer.step()
    noted = [row for row in rows if row["moment"] == "optimizer step"]
    assert sum(int(str(row["bytes"])) for row in noted) == PARAMETER_BYTES
    assert {row["category"] for row in noted} == {"gradient"}
    assert {row["moment"] for row in rows} == {"optimizer step", "profile end"}
    assert all(set(row) <= set(schema.MEMORY_BLOCKS) for row in rows)
    # What a second profile records is its own.
    recorder.start()
    assert not [r for r in recorder.stop()["memory_blocks"] if r["moment"] == "optimizer step"]
    assert model is not None


def test_gradients_of_very_many_steps_are_not_all_kept(
    trained: tuple[Model, torch.optim.Adam], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, optimizer = trained
    monkeypatch.setattr(memory_blocks, "_MOST_GRADIENTS", 3)
    recorder = MemoryBlocks()
    recorder.start()
    for _ in range(5):
        optimizer.step()
    noted = [r for r in recorder.stop()["memory_blocks"] if r["moment"] == "optimizer step"]
    # Two a step: the last step that is noted is noted whole.
    assert len(noted) == 4


def segments(address: int, categories: str = "aaf") -> list[dict[str, Any]]:
    """A segment of 4 MB: two blocks in use and one that is free, as torch lists them."""
    states = {"a": "active_allocated", "p": "active_awaiting_free", "f": "inactive"}
    sizes = (512, MB, 4 * MB - MB - 512)
    blocks = [
        {"size": size, "requested_size": size - 12, "state": states[letter]}
        for size, letter in zip(sizes, categories, strict=True)
    ]
    frames = [{"filename": "train.py", "line": 42, "name": "forward"}]
    return [
        {"device": 0, "address": address, "total_size": 4 * MB}
        | {"blocks": [{**blocks[0], "frames": frames}, *blocks[1:]]}
    ]


def test_blocks_of_an_allocator_know_what_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    loose = torch.zeros(3)
    address = loose.untyped_storage().data_ptr()
    held = HeldStorage(0, 1000 + 512, 700_000, "parameter", "up.weight")
    monkeypatch.setattr(cuda, "in_use", lambda: True)
    monkeypatch.setattr(cuda, "allocator_segments", lambda: segments(1000))
    monkeypatch.setattr(memory_blocks, "held_storages", lambda: [held, *held_storages([loose])])
    rows = memory_blocks.blocks_now("profile end")
    on_device = [row for row in rows if row["device"] == 0]
    assert [(row["address"], row["bytes"], row["state"]) for row in on_device] == [
        (1000, 512, "allocated"),
        (1512, MB, "allocated"),
        (1512 + MB, 3 * MB - 512, "free"),
    ]
    assert [row.get("category") for row in on_device] == [None, "parameter", None]
    assert on_device[0]["stack"] == "train.py:42 forward"
    assert [row["address"] for row in rows if row["device"] is None] == [address]


def observer(
    monkeypatch: pytest.MonkeyPatch, *, stacks: bool = False
) -> tuple[out_of_memory.OutOfMemoryObserver, Any]:
    """One that was attached, and what torch would call."""
    attached: list[Any] = []
    cuda_module: Any = torch.cuda
    monkeypatch.setattr(
        torch._C, "_cuda_attach_out_of_memory_observer", attached.append, raising=False
    )
    monkeypatch.setattr(cuda_module, "_lazy_call", lambda call: call())
    monkeypatch.setattr(cuda, "in_use", lambda: True)
    monkeypatch.setattr(cuda, "allocator_segments", lambda: segments(1000))
    made = out_of_memory.make_observer(Scope(rank=3, memory_stacks=stacks))
    made.start()
    (call,) = attached
    return made, call


def test_a_failure_is_written_down_with_what_was_live(monkeypatch: pytest.MonkeyPatch) -> None:
    made, failed = observer(monkeypatch)
    failed(0, 5 * MB, 8 * MB, MB)
    tables = made.stop()
    row = table_of("out_of_memory", tables).row(0, named=True)
    assert (row["rank"], row["device"], row["asked"], row["limit"], row["free"]) == (
        *(3, 0, 5 * MB),
        *(8 * MB, MB),
    )
    line = sys._getframe().f_code.co_firstlineno
    name, _, where = row["stack"].splitlines()[0].rpartition(":")
    assert Path(name).resolve() == Path(__file__)
    assert where == f"{line + 2} {sys._getframe().f_code.co_name}"
    blocks = table_of("memory_blocks", tables)
    assert set(blocks["moment"]) == {"out of memory"}
    assert blocks.filter(device=0)["bytes"].sum() == 4 * MB
    # Afterwards it is quiet, for torch keeps it.
    failed(0, MB, MB, 0)
    assert table_of("out_of_memory", made.stop()).height == 1


def test_what_goes_wrong_at_a_failure_reaches_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    made, failed = observer(monkeypatch)

    def broken() -> list[dict[str, Any]]:
        raise RuntimeError("no snapshot")

    monkeypatch.setattr(cuda, "allocator_segments", broken)
    failed(0, MB, MB, 0)
    assert [note.sentence for note in made.notes] == [
        "what memory held when it ran out is missing: no snapshot"
    ]
    assert table_of("out_of_memory", made.stop()).height == 1


def test_looks_take_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out_of_memory, "_LOOKING_NS", 0)
    made, failed = observer(monkeypatch)
    failed(0, MB, MB, 0)
    tables = made.stop()
    # What lived at the last failure is unknown, and not that of an earlier one.
    assert set(tables) == {"out_of_memory"}


def test_a_program_that_fails_again_and_again_takes_no_more_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(out_of_memory, "_MOST_FAILURES", 3)
    made, failed = observer(monkeypatch)
    for asked in range(1, 8):
        failed(0, asked, MB, 0)
    # The first ones and the last.
    assert table_of("out_of_memory", made.stop())["asked"].to_list() == [1, 2, 7]


def test_stacks_are_kept_where_asked_for_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    memory: Any = torch.cuda.memory
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(memory, "_record_memory_history", lambda **given: calls.append(given))
    made, _ = observer(monkeypatch)
    assert (calls, made.notes) == ([], [])
    made, _ = observer(monkeypatch, stacks=True)
    assert calls == [{"enabled": "state", "stacks": "python"}]
    assert "--memory" in made.notes[0].sentence


def test_torch_calls_it_so() -> None:
    # A build without CUDA lacks it, but every torch lists what dynamo meets.
    rules = Path(torch.__file__).parent / "_dynamo" / "trace_rules.py"
    assert '"torch._C._cuda_attach_out_of_memory_observer"' in rules.read_text()


def test_a_torch_that_tells_nothing_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C, "_cuda_attach_out_of_memory_observer", raising=False)
    made = out_of_memory.make_observer(Scope())
    made.start()
    assert not out_of_memory.find_observer().available
    assert made.stop() == {}


def failing_program(
    build: CaptureBuilder,
    failed: int,
    limit: int,
    free: int,
    category: str = "parameter",
    **process: Any,
) -> Any:
    """What a program with one segment of 4 MB is told when it asks for `failed` bytes."""
    blocks = list(block_rows(segments(1000), moment="out of memory", time_ns=50, stacks=Stacks()))
    blocks[1]["category"] = category
    build.rows["memory_blocks"] = blocks
    build.rows["out_of_memory"] = [
        {"time_ns": 50, "device": 0, "asked": failed, "limit": limit, "free": free}
        | {"stack": "/x/site-packages/torch/nn/functional.py:9 relu\n/x/train.py:42 forward"}
    ]
    use = memory_use(build.build(**process))
    assert use is not None
    return use.out_of_memory


def test_a_failure_says_what_was_live_and_what_to_do(build: CaptureBuilder) -> None:
    product = build.op("aten::mm", 10, 20)
    event = {"time_ns": 15, "device": 0, "address": 1000, "bytes": 512, "total": 512}
    build.rows["allocations"].append({**event, "op_id": product})
    failure = failing_program(
        *(build, 2 * MB, 16 * MB, 9 * MB),
        exceptions=("builtins.RuntimeError", "torch.OutOfMemoryError"),
    )
    assert failure.fatal
    assert failure.line == "/x/train.py:42 forward"
    assert {each.kind: each.bytes for each in failure.live.kinds} == {
        "parameters": MB,
        "activations": 512,
    }
    assert failure.live.reserved_bytes == 4 * MB
    # What the trace saw begin has its operator.
    assert [(h.operator, h.line) for h in failure.live.holders] == [
        ("", ""),
        ("aten::mm", "train.py:42 forward"),
    ]
    held = failure.fragmentation
    assert (held.largest_free_block_bytes, held.inactive_split_bytes) == (
        3 * MB - 512,
        3 * MB - 512,
    )
    fragmented, limited = failure.advice
    assert "expandable_segments" in fragmented
    assert "set_per_process_memory_fraction" in limited


def test_advice_is_of_what_is_in_the_way_alone(build: CaptureBuilder) -> None:
    failure = failing_program(build, MB // 2, 3 * MB, 0)
    assert not failure.fatal
    fragmented, parameters = failure.advice
    assert "expandable_segments" in fragmented
    assert "shard" in parameters
    assert "parameters: 33% of what torch may use" in parameters
    (too_large, others) = sorted(failing_program(build, 40 * MB, 50 * MB, 36 * MB).advice)
    assert too_large.startswith("20% of the device belong to other processes")
    assert "80% of what torch may use" in others
    (lists,) = failing_program(build, MB // 2, 3 * MB, 0, "tensor").advice[1:]
    assert "outputs and losses" in lists


def test_the_level_of_torchs_log_lines_comes_back() -> None:
    assert cpp_log_level.can_be_set()
    level = cpp_log_level._level()
    assert level is not None
    before = level.value
    restore = cpp_log_level.errors_only()
    assert restore is not None
    assert level.value >= 2
    restore()
    assert level.value == before
