"""Names that dynamo has for modules, and stacks that it keeps as text."""

from pathlib import Path

import pytest
from torch import nn

from gpuprof.collectors.live.dynamo_names import ModuleNames, NamedModule
from gpuprof.collectors.live.program_files import ProgramFiles
from gpuprof.collectors.live.traceback_text import FramePlace, places_of


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(2, 2)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.up = Block()


MODULES = list(Model().modules())


@pytest.mark.parametrize(
    ("name", "kind", "found"),
    [
        # torch 2.13, torch 2.6, and with parameters that are inputs of the graph.
        ("L['self'].blocks.0", "Block", NamedModule("blocks.0", True, ("blocks.0",))),
        ("L['self'].blocks[0].up", "Linear", NamedModule("blocks.0.up", True, ("blocks.0.up",))),
        (
            "L['self']._modules['blocks']._modules['1']",
            "Block",
            NamedModule("blocks.1", True, ("blocks.1",)),
        ),
        # By its class: the model has an `up` itself.
        (
            "L['self'].up",
            "Linear",
            NamedModule("up", True, ("blocks.0.up", "blocks.1.up", "up.up")),
        ),
        ("L['self'].up", "Block", NamedModule("up", True, ("up",))),
        # In something else than a module.
        (
            "L['self'].trainer.model.blocks[1].up",
            "Linear",
            NamedModule("blocks.1.up", True, ("blocks.1.up",)),
        ),
        ("G['net'].blocks.1", "Block", NamedModule("blocks.1", False, ("blocks.1",))),
        ("L['self']._orig_mod.blocks.1", "Block", NamedModule("blocks.1", True, ("blocks.1",))),
        ("L['self']", "Model", NamedModule("", True)),
        ("L['self'].gone", "Block", NamedModule("gone", True)),
    ],
)
def test_a_name_of_dynamo_is_the_path_of_a_module(name: str, kind: str, found: NamedModule) -> None:
    outer = ("L['self'].outer", "Outer")
    assert ModuleNames(MODULES).find((outer, (name, kind))) == found


def test_no_module_has_no_path() -> None:
    assert ModuleNames(MODULES).find(()) == NamedModule()


SOURCE = """\
def decorate(function):
    return function

class Block:
    @decorate
    @decorate
    def forward(self, x):
        inner = lambda x: x + 1
        def step(y):
            return inner(y)
        return step(x)

    def other(self):
        return [x
                for x in self]
"""


def test_frames_of_a_stack_have_their_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("def forward(:\n")
    library = nn.__file__
    stack = (
        f'  File "{tmp_path}/model.py", line 11, in forward\n    return step(x)\n'
        f'           ^^^^^^^\n  File "{library}", line 1, in forward\n    nothing\n'
        f'  File "{tmp_path}/model.py", line 10, in step\n    return inner(y)\n'
        f'  File "{tmp_path}/model.py", line 15, in other\n'
        f'  File "{tmp_path}/broken.py", line 1, in forward\n'
        '  File "<string>", line 3, in <module>\n'
    )
    assert places_of(stack, ProgramFiles()) == [
        FramePlace("model.py", 11, "Block.forward", 5, own=True),
        FramePlace("torch/nn/__init__.py", 1, "forward", None, own=False),
        FramePlace("model.py", 10, "Block.forward.<locals>.step", 9, own=True),
        FramePlace("model.py", 15, "Block.other", 13, own=True),
        FramePlace("broken.py", 1, "forward", None, own=True),
        FramePlace("<string>", 3, "<module>", None, own=True),
    ]
    assert places_of("", ProgramFiles()) == []


def test_a_name_that_is_no_utf8_can_be_stored() -> None:
    assert ProgramFiles().file_name("/elsewhere/s\udcff.py") == r"/elsewhere/s\udcff.py"
