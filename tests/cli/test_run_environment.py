"""What a program sets before it imports torch counts as it does under python."""

import errno
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from training_script import FEW

from gpuprof.collectors import storage
from gpuprof.collectors.manifest import ProcessInfo

Gpuprof = Callable[..., "subprocess.CompletedProcess[str]"]
Both = Callable[..., ProcessInfo]
Run = Callable[..., ProcessInfo]

TRAINING = """
def train(steps):
    # No optimizer: its import takes longer than that of torch.
    model = torch.nn.Linear(8, 8)
    for _ in range(steps):
        model(torch.randn(2, 8)).sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
"""
# One thread only: set to two, each of these is told from the default anywhere.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def python(
    folder: Path, environment: dict[str, str], *arguments: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def environment(gpuprof_environment: dict[str, str]) -> dict[str, str]:
    """Without what is set here already."""
    return {name: value for name, value in gpuprof_environment.items() if name not in THREADS}


RUN = ("-m", "gpuprof", "run", "-q", "-f", *FEW, "-o", "out.gpuprof")


@pytest.fixture
def both(tmp_path: Path, environment: dict[str, str]) -> Both:
    """Run a script with python and with gpuprof: it prints the same, and is captured."""

    def run(source: str) -> ProcessInfo:
        (tmp_path / "script.py").write_text(textwrap.dedent(source))
        plain, ours = (
            python(tmp_path, environment, *command, "script.py") for command in ((), RUN)
        )
        assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout), ours.stderr
        assert ours.stderr == plain.stderr
        return storage.load(tmp_path / "out.gpuprof").processes[0]

    return run


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Run:
    """Run a script with gpuprof of which is known what it prints with python, and is captured."""

    def run(source: str, *arguments: str, prints: str = "") -> ProcessInfo:
        (tmp_path / "script.py").write_text(textwrap.dedent(source))
        ours = python(tmp_path, environment, *RUN, *(arguments or ("script.py",)))
        assert (ours.returncode, ours.stdout, ours.stderr) == (0, prints, "")
        return storage.load(tmp_path / "out.gpuprof").processes[0]

    return run


@pytest.mark.parametrize("variable", THREADS)
def test_threads_set_before_torch_is_imported_count(run: Run, variable: str) -> None:
    process = run(
        f"""
        import os
        os.environ["{variable}"] = "1"
        import torch
        {textwrap.indent(TRAINING, " " * 8)}
        train(9)
        print("threads", torch.get_num_threads())
        """,
        prints="threads 1\n",
    )
    assert process.fingerprint.torch_threads == 1
    assert process.fingerprint.environment[variable] == "1"
    assert process.warnings == ()


def test_threads_set_after_torch_is_imported_are_said_to_have_no_effect(both: Both) -> None:
    process = both(
        f"""
        import os
        os.environ["MKL_NUM_THREADS"] = "3"
        import torch
        os.environ["OMP_NUM_THREADS"] = "7"
        del os.environ["MKL_NUM_THREADS"]
        {textwrap.indent(TRAINING, " " * 8)}
        train(9)
        print("threads", torch.get_num_threads())
        """
    )
    shown = process.fingerprint.environment
    assert (shown.get("OMP_NUM_THREADS"), shown["MKL_NUM_THREADS"]) == (None, "3")
    (warning,) = process.warnings
    assert "MKL_NUM_THREADS, OMP_NUM_THREADS" in warning


def test_compilers_see_what_is_set_before_they_are_imported(run: Run) -> None:
    # Also after torch: nothing of ours imports them.
    variables = ("TORCH_COMPILE_DISABLE", "TORCHINDUCTOR_MAX_AUTOTUNE", "TORCHINDUCTOR_FREEZING")
    process = run(
        f"""
        import os
        import torch
        model = torch.nn.Linear(8, 8)
        with torch.no_grad():
            for _ in range(9):
                model(torch.ones(2, 8))
        os.environ.update(dict.fromkeys({variables}, "1"))
        import torch._dynamo.config
        import torch._inductor.config
        inductor = torch._inductor.config
        print(torch._dynamo.config.disable, inductor.max_autotune, inductor.freezing)
        """,
        prints="True True True\n",
    )
    assert {process.fingerprint.environment[variable] for variable in variables} == {"1"}


def test_logs_set_before_torch_is_imported_are_printed(
    tmp_path: Path, cold_gpuprof: Gpuprof
) -> None:
    (tmp_path / "script.py").write_text(
        "import os\nos.environ['TORCH_LOGS'] = '+dynamo'\nimport logging, torch\n"
        "print(logging.getLogger('torch._dynamo').level)"
    )
    done = cold_gpuprof("run", "-q", "script.py")
    assert done.stdout == "10\n", done.stderr


def test_gpuprof_itself_leaves_torch_to_the_program(run: Run) -> None:
    statements = (
        "import gpuprof",
        "from gpuprof import step, region, profile",
        "with gpuprof.region('before'): pass",
    )
    process = run(
        "import os, sys\n"
        + "".join(f"{one}\nprint('torch' in sys.modules)\n" for one in statements)
        + "os.environ['OMP_NUM_THREADS'] = '1'\n"
        f"import torch\n{TRAINING}\ntrain(9)\n"
        "print(torch.get_num_threads())",
        prints="False\nFalse\nFalse\n1\n",
    )
    assert process.fingerprint.torch_threads == 1


def test_a_block_under_run_joins_it_though_torch_comes_with_it(
    tmp_path: Path, cold_gpuprof: Gpuprof
) -> None:
    (tmp_path / "script.py").write_text(
        "import gpuprof\n"
        "with gpuprof.profile('block.gpuprof') as block:\n"
        f"    import torch\n{textwrap.indent(TRAINING, '    ')}    train(9)\n"
        "print(block.analysis)\n"
    )
    done = cold_gpuprof("run", "-q", *FEW, "-o", "out.gpuprof", "script.py")
    assert (done.returncode, done.stdout) == (0, "None\n"), done.stderr
    process = storage.load(tmp_path / "out.gpuprof").processes[0]
    assert process.steps_found_by == "forward calls of Linear"
    assert not (tmp_path / "block.gpuprof").exists()


def test_a_program_without_torch_is_left_without_it(both: Both) -> None:
    process = both(
        """
        import sys
        heavy = {"torch", "polars", "numpy", "nvtx", "pynvml", "rich", "scipy"}
        print(sorted(heavy & set(sys.modules)))
        sys.exit(3)
        """
    )
    assert (process.exit_code, process.fingerprint.torch) == (3, None)
    assert process.fingerprint.devices[0].kind == "cpu"
    assert process.warnings == ()


def test_nothing_that_stores_is_in_the_program_once_steps_are_profiled(run: Run) -> None:
    process = run(
        f"""
        import sys, threading
        import torch
        {textwrap.indent(TRAINING, " " * 8)}
        train(30)
        stores = {{"polars", "scipy", "rich", "plotly", "jinja2", "pandas", "dask", "pyarrow"}}
        print(sorted(stores & set(sys.modules)))
        print([thread.name for thread in threading.enumerate()])
        print([type(one) for one in sys.meta_path if "gpuprof" in repr(one)])
        print(vars(torch.__loader__) == {{"name": "torch", "path": torch.__file__}})
        """,
        prints="[]\n['MainThread']\n[]\nTrue\n",
    )
    assert process.ending == "finished"


def test_torch_is_found_wherever_it_is_imported(run: Run, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("import os\nos.environ['OMP_NUM_THREADS'] = '1'\n")
    (package / "late.py").write_text(
        f"def main():\n    global torch\n    import torch\n    train(9)\n{TRAINING}"
    )
    (package / "__main__.py").write_text("from package.late import main\nmain()")
    process = run("", "-m", "package")
    assert process.steps_found_by == "forward calls of Linear"
    assert process.fingerprint.torch_threads == 1


def test_torch_that_a_parent_package_imports_is_found(run: Run, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("import torch")
    (package / "__main__.py").write_text(f"import torch\n{TRAINING}\ntrain(9)")
    assert run("", "-m", "package").steps_found_by == "forward calls of Linear"


def test_torch_that_a_thread_imports_is_found_by_the_one_that_steps(run: Run) -> None:
    process = run(
        f"""
        import threading
        loading = threading.Thread(target=__import__, args=("torch",))
        loading.start()
        import torch
        {textwrap.indent(TRAINING, " " * 8)}
        train(9)
        """
    )
    assert process.steps_found_by == "forward calls of Linear"
    assert process.warnings == ()


def test_an_import_of_torch_that_fails_is_told_as_python_tells_it(
    both: Both, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12: cannot open')")
    process = both(
        """
        try:
            import torch
        except ImportError as error:
            print(error)
        import torch
        """
    )
    assert process.exit_code == 1


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_that_import_torch_are_not_watched(run: Run, method: str) -> None:
    process = run(
        f"""
        import multiprocessing, os
        def work(_):
            import torch
            {textwrap.indent(TRAINING, " " * 12)}
            train(9)
            return "torch.profiler" in repr(torch.profiler)
        if __name__ == "__main__":
            with multiprocessing.get_context("{method}").Pool(1) as pool:
                print(pool.map(work, [1]))
        """,
        prints="[True]\n",
    )
    assert process.steps_found_by == "the whole script, which marked no steps"


CHILDREN = (
    """
import os, signal, sys, time
import torch
died = []
signal.signal(signal.SIGCHLD, lambda *_: died.append(1))
"""
    + TRAINING
    + """
train(9)
time.sleep(1)
try:
    print(os.waitpid(-1, 0))
except ChildProcessError as error:
    print(error)
print(died)
"""
)


def test_the_process_that_stores_is_no_child_of_the_program(run: Run) -> None:
    prints = f"{OSError(errno.ECHILD, os.strerror(errno.ECHILD))}\n[]\n"
    assert run(CHILDREN, prints=prints).ending == "finished"


def test_a_loop_goes_on_while_the_early_capture_is_stored(tmp_path: Path, gpuprof: Gpuprof) -> None:
    # The capture comes while the program still steps, and a kill then leaves it.
    (tmp_path / "script.py").write_text(
        f"import json, os, signal, sys, time\nimport torch\n{TRAINING}"
        "train(9)\n"
        "steps = 0\n"
        "while not os.path.exists('out.gpuprof/manifest.json'):\n"
        "    train(1)\n"
        "    steps += 1\n"
        # Storing gives way to the program: steps without a pause would leave it no core.
        "    time.sleep(0.01)\n"
        "print(steps, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = gpuprof("run", "-q", *FEW, "-o", "out.gpuprof", "script.py")
    assert done.returncode == -9
    assert int(done.stdout) > 0
    capture = storage.load(tmp_path / "out.gpuprof")
    assert capture.processes[0].ending == "unknown"
    assert capture.kernels.height > 0
    assert json.loads((tmp_path / "out.gpuprof" / "analysis.json").read_text())


def test_where_the_storing_process_is_gone_the_program_stores_itself(
    tmp_path: Path, gpuprof: Gpuprof
) -> None:
    (tmp_path / "script.py").write_text(
        f"import os\nimport torch\n{TRAINING}os.closerange(3, 256)\ntrain(9)\nprint('trained')\n"
    )
    done = gpuprof("run", "-q", *FEW, "-o", "out.gpuprof", "script.py")
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert storage.load(tmp_path / "out.gpuprof").processes[0].ending == "finished"


def test_another_file_in_the_place_of_the_connection_is_left_alone(
    tmp_path: Path, gpuprof: Gpuprof
) -> None:
    (tmp_path / "script.py").write_text(
        f"import os\nimport torch\n{TRAINING}os.closerange(3, 256)\n"
        "files = [open(f'{n}.txt', 'wb', 0) for n in range(60)]\n"
        "train(9)\n"
    )
    done = gpuprof("run", "-q", *FEW, "-o", "out.gpuprof", "script.py")
    assert done.returncode == 0, done.stderr
    assert {os.path.getsize(tmp_path / f"{n}.txt") for n in range(60)} == {0}


def test_an_early_capture_whose_folder_is_gone_lies_elsewhere_until_the_end(
    tmp_path: Path, gpuprof: Gpuprof
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "script.py").write_text(
        f"import os, time\nimport torch\n{TRAINING}"
        "os.rmdir('sub')\nopen('sub', 'w').close()\n"
        "train(9)\ntime.sleep(3)\n"
        "os.remove('sub')\nos.mkdir('sub')\n"
    )
    done = gpuprof("run", "-q", *FEW, "-o", "sub/out.gpuprof", "script.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert storage.load(tmp_path / "sub" / "out.gpuprof").kernels.height > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["script.py", "sub"]


@pytest.mark.parametrize(
    "serving",
    [
        """
        requests = queue.Queue()
        def serve():
            while (batch := requests.get()) is not None:
                model(batch)
        server = threading.Thread(target=serve)
        server.start()
        for _ in range(60):
            requests.put(torch.randn(2, 8))
        requests.put(None)
        server.join()
        """,
        # The first look, of the main thread, must not be ended any more: SIGSEGV.
        """
        def serve(number):
            return model(torch.ones(2, 8)).isfinite().all().item()
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(serve, range(400)))
        """,
    ],
    ids=["thread", "pool"],
)
def test_a_model_that_threads_serve_is_profiled_there(run: Run, serving: str) -> None:
    # Threads of torch within a forked program end it now and then (SIGSEGV).
    process = run(
        f"""
        import queue, threading, torch
        from concurrent.futures import ThreadPoolExecutor
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
        {serving}
        """
    )
    assert process.steps_found_by == "forward calls of Sequential"
    assert process.warnings == ()
