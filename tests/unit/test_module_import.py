"""The program's own import of torch is noticed, and nothing shows that anybody waited for it."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

WAITING = """
import importlib, importlib.abc, importlib.util, os, sys
from gpuprof.collectors.live.module_import import once_imported
before = list(sys.meta_path)
def told():
    print('told', 'torch' in sys.modules)
"""


def printed(folder: Path, source: str) -> str:
    """What a program prints that finds a small torch of its own in `folder`."""
    package = folder / "torch"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("from torch import part\nprint('torch is here')\n")
    (package / "part.py").write_text("import torch\n")
    done = subprocess.run(
        [sys.executable, "-c", WAITING + textwrap.dedent(source)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    "statement",
    [
        "import torch",
        "import torch.part",
        "importlib.import_module('torch')",
        "importlib.util.find_spec('torch'); import torch",
        "import threading; t = threading.Thread(target=__import__, args=('torch',)); "
        "t.start(); t.join()",
    ],
)
def test_it_is_told_once_when_torch_is_complete(tmp_path: Path, statement: str) -> None:
    source = f"""
    with once_imported("torch", told):
        {statement}
        print(sys.meta_path == before)
        import torch
        importlib.reload(torch)
    print(type(torch.__loader__).__name__, sorted(vars(torch.__loader__)))
    print(torch.__spec__.loader is torch.__loader__)
    """
    assert printed(tmp_path, source).splitlines() == [
        "torch is here",
        "told True",
        "True",
        "torch is here",
        "SourceFileLoader ['name', 'path']",
        "True",
    ]


def test_it_is_told_at_once_where_torch_is_imported_already(tmp_path: Path) -> None:
    source = """
    import torch
    with once_imported("torch", told):
        print(sys.meta_path == before)
    """
    assert printed(tmp_path, source).splitlines() == ["torch is here", "told True", "True"]


def test_an_import_that_fails_is_the_programs_to_answer(tmp_path: Path) -> None:
    source = """
    part = open('torch/part.py').read()
    open('torch/part.py', 'w').write('raise ImportError("no libcudart")')
    with once_imported("torch", told):
        try:
            import torch
        except ImportError as error:
            print(error, 'torch' in sys.modules)
        open('torch/part.py', 'w').write(part + '# again')
        importlib.invalidate_caches()
        import torch
    """
    assert printed(tmp_path, source).splitlines() == [
        "no libcudart False",
        "torch is here",
        "told True",
    ]


def test_a_program_without_torch_leaves_no_trace(tmp_path: Path) -> None:
    source = """
    with once_imported("torch", told):
        pass
    print(sys.meta_path == before)
    import torch
    """
    assert printed(tmp_path, source).splitlines() == ["True", "torch is here"]


def test_what_a_look_finds_is_what_it_is_without_us(tmp_path: Path) -> None:
    source = """
    plain = importlib.util.find_spec('torch')
    with once_imported("torch", told):
        found = importlib.util.find_spec('torch')
        print(type(found) is type(plain), type(found.loader) is type(plain.loader))
        print(found.origin == plain.origin, importlib.util.find_spec('no_such_module'))
    """
    assert printed(tmp_path, source).splitlines() == ["True True", "True None"]


def test_another_finder_may_ask_all_others_as_well(tmp_path: Path) -> None:
    source = """
    class Asking(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            others = [each for each in sys.meta_path if each is not self]
            found = (each.find_spec(name, path, target) for each in others)
            return next(filter(None, found), None) if name == "torch" else None
    with once_imported("torch", told):
        sys.meta_path.insert(0, Asking())
        import torch
    """
    assert printed(tmp_path, source).splitlines() == ["torch is here", "told True"]


def test_a_child_that_imports_torch_tells_nobody(tmp_path: Path) -> None:
    source = """
    with once_imported("torch", told):
        child = os.fork()
        if child == 0:
            import torch
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        print('parent', sys.meta_path == before)
    """
    assert printed(tmp_path, source).splitlines() == ["torch is here", "parent False"]
