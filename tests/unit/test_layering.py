"""Which part of gpuprof may import which, and what an import costs."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from checkout import needs_checkout

pytestmark = needs_checkout
ROOT = Path(__file__).parents[2]
# What each source folder may import of the others. Nothing imports profiler.
ALLOWED = {
    "collectors": {"collectors"},
    "roofline": {"roofline", "collectors"},
    "reports": {"reports", "roofline", "collectors"},
    "reference_kernels": {"reference_kernels", "roofline", "collectors"},
    "profiler": {"profiler", "reports", "roofline", "collectors", "reference_kernels"},
    # What any program may use: the names of `gpuprof` itself.
    "integrations": {"integrations"},
}
# Packages that live processes and GPUs need; a stored capture is read without them.
LIVE_ONLY = {"torch", "triton", "nvtx", "pynvml", "cuda"}


def imported(file: Path) -> Iterator[str]:
    """Full names of the modules that `file` imports anywhere, also inside functions."""
    for node in ast.walk(ast.parse(file.read_text(), str(file))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def files(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found
    return found


def test_every_source_folder_has_its_rule() -> None:
    assert {path.parent.name for path in (ROOT / "src" / "gpuprof").glob("*/__init__.py")} == set(
        ALLOWED
    )


@pytest.mark.parametrize("folder", ALLOWED)
def test_a_folder_imports_only_what_lies_below_it(folder: str) -> None:
    own_root = {"_version"}
    wrong = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in files(folder)
        for name in imported(file)
        if name.split(".")[0] == "gpuprof"
        and name.count(".")
        and name.split(".")[1] not in ALLOWED[folder] | own_root
    ]
    assert wrong == []


@pytest.mark.parametrize("folder", ["roofline", "reports"])
def test_meaning_and_reports_import_nothing_that_needs_a_live_process(folder: str) -> None:
    wrong = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in files(folder)
        for name in imported(file)
        if name.split(".")[0] in LIVE_ONLY
    ]
    assert wrong == []


@pytest.mark.parametrize("folder", ["collectors", "roofline", "reference_kernels"])
def test_only_reports_and_the_profiler_print(folder: str) -> None:
    printing = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in files(folder)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert printing == []


def module_imports() -> dict[str, set[str]]:
    """Each module of the package and the modules of it that it imports, also inside functions."""
    paths = {
        "gpuprof." + ".".join(file.relative_to(ROOT).with_suffix("").parts): file
        for folder in ALLOWED
        for file in files(folder)
    }
    paths = {name.removesuffix(".__init__"): file for name, file in paths.items()}

    def nearest(name: str) -> str:
        while name and name not in paths:
            name = name.rpartition(".")[0]
        return name

    return {
        module: {target for name in imported(file) if (target := nearest(name)) not in ("", module)}
        for module, file in paths.items()
    }


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """One circle of `graph`, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circle(module_imports()) == []


def test_no_rooms_of_a_folder_import_each_other_in_a_circle() -> None:
    graph = module_imports()
    parents = {name.rpartition(".")[0] for name in graph}
    for parent in parents:
        depth = parent.count(".") + 2

        def room(module: str, depth: int = depth) -> str:
            return ".".join(module.split(".")[:depth])

        rooms: dict[str, set[str]] = {}
        for module, targets in graph.items():
            if module.startswith(f"{parent}."):
                inside = {room(t) for t in targets if t.startswith(f"{parent}.")}
                rooms.setdefault(room(module), set()).update(inside - {room(module)})
        assert circle(rooms) == [], parent


def loaded_after(code: str) -> set[str]:
    """The top-level packages that a fresh interpreter has loaded after `code`."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.split(".")[0] for name in done.stdout.split()}


def test_importing_gpuprof_loads_nothing_heavy() -> None:
    loaded = loaded_after("import gpuprof; gpuprof.__version__; dir(gpuprof)")
    assert loaded & {"torch", "polars", "numpy", "msgspec", "rich", "plotly", "jinja2"} == set()


def test_a_script_that_marks_its_steps_loads_nothing_of_what_records() -> None:
    loaded = loaded_after("import gpuprof; gpuprof.step()\nwith gpuprof.region('one'): pass")
    heavy = {"torch", "polars", "numpy", "msgspec", "rich", "nvtx", "pynvml"}
    assert loaded & heavy == set()


def test_the_command_line_starts_without_torch_and_polars() -> None:
    code = "from gpuprof.profiler.cli import make_parser\nmake_parser()"
    assert loaded_after(code) & {"torch", "polars", "numpy", "plotly", "jinja2"} == set()


def test_what_records_in_a_program_loads_nothing_that_stores() -> None:
    loaded = loaded_after("import torch, gpuprof.profiler.run.recording")
    assert "torch" in loaded
    assert loaded & {"polars", "scipy", "rich", "plotly", "jinja2"} == set()


def test_what_was_sampled_is_given_without_a_library_of_tables() -> None:
    loaded = loaded_after(
        f"import sys; sys.path.append({str(ROOT / 'tests' / 'support')!r})\n"
        "from fake_nvml import FakeNvml\n"
        "from gpuprof.collectors.live.nvml.sampler import NvmlSampler\n"
        "sampler = NvmlSampler(library=FakeNvml(), interval_ns=10**12)\n"
        "sampler.start()\n"
        "assert len(sampler.stop()['samples']['time_ns']) == 2\n"
    )
    assert loaded & {"polars", "numpy"} == set()


def test_a_stored_capture_is_analysed_and_rendered_without_torch() -> None:
    capture = ROOT / "tests" / "data" / "captures" / "h200_llama_block"
    code = f"""
import gpuprof
from gpuprof.reports.html.page import render_html
analysis = gpuprof.analyze(gpuprof.load({str(capture)!r}))
assert "H200" in render_html(analysis)
"""
    loaded = loaded_after(code)
    assert loaded & LIVE_ONLY == set()
    assert "plotly" in loaded
