"""`gpuprof run` behaves as python does, and what it saw is on disk afterwards."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from fork_server import ForkServer

from gpuprof.collectors import storage
from gpuprof.collectors.capture import Capture

Gpuprof = Callable[..., "subprocess.CompletedProcess[str]"]

TRAINING = """
import torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).sum().backward()
        optimizer.step()
"""


def write(folder: Path, source: str, name: str = "script.py") -> str:
    (folder / name).write_text(textwrap.dedent(source))
    return name


def phases(capture: Capture) -> list[str]:
    return capture.steps["phase"].to_list()


def matmul_calls(capture: Capture) -> int:
    return capture.kernels.filter(capture.kernels["name"].is_in(["aten::addmm", "aten::mm"])).height


def test_runs_a_script_as_python_does(tmp_path: Path, gpuprof: Gpuprof) -> None:
    write(tmp_path, "VALUE = 5", "neighbour.py")
    script = write(
        tmp_path,
        """
        import json, sys
        import neighbour
        class Local: pass
        import pickle
        pickle.loads(pickle.dumps(Local()))
        print(json.dumps([sys.argv, sys.path[0], __name__, __file__, neighbour.VALUE]))
        sys.exit(7)
        """,
    )
    plain = subprocess.run(
        [sys.executable, script, "-o", "x", "--force"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    ours = gpuprof("run", "-o", "out.gpuprof", script, "-o", "x", "--force")
    assert (ours.returncode, ours.stdout) == (7, plain.stdout)
    process = storage.load(tmp_path / "out.gpuprof").processes[0]
    assert (process.exit_code, process.ending) == (7, "finished")


def test_runs_a_module_as_python_does(tmp_path: Path, gpuprof: Gpuprof) -> None:
    package = tmp_path / "package"
    package.mkdir()
    write(package, "", "__init__.py")
    write(
        package,
        """
        import json, sys
        from . import __name__ as parent
        print(json.dumps([sys.argv[1:], __name__, __spec__.name, __package__, parent]))
        """,
        "__main__.py",
    )
    plain = subprocess.run(
        [sys.executable, "-m", "package", "a"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    ours = gpuprof("run", "-q", "-o", "out.gpuprof", "-m", "package", "a")
    assert (ours.returncode, ours.stdout, ours.stderr) == (0, plain.stdout, "")


def test_runs_a_command_string(tmp_path: Path, gpuprof: Gpuprof) -> None:
    ours = gpuprof("run", "-q", "-c", "import sys; print(sys.argv, repr(sys.path[0]))", "a")
    assert ours.stdout == "['-c', 'a'] ''\n"


def test_an_exception_prints_the_scripts_own_traceback(
    tmp_path: Path, gpuprof: Gpuprof, server: ForkServer
) -> None:
    script = write(tmp_path, TRAINING + "train(4)\ndef fail():\n    raise ValueError('no')\nfail()")
    plain = server.run(script, folder=tmp_path, environment=os.environ)
    assert "ValueError: no" in plain.stderr
    ours = gpuprof("run", "-q", "-o", "out.gpuprof", script)
    assert ours.returncode == 1
    assert ours.stderr == plain.stderr
    capture = storage.load(tmp_path / "out.gpuprof")
    assert capture.processes[0].ending == "exception"
    assert matmul_calls(capture) > 0


def test_an_exception_inside_a_watched_call_prints_the_scripts_own_traceback(
    tmp_path: Path, gpuprof: Gpuprof, server: ForkServer
) -> None:
    script = write(
        tmp_path,
        TRAINING + "import nvtx\n@nvtx.annotate()\ndef call(x):\n    return model(x)\n"
        "train(4)\ncall(torch.randn(8, 63))",
    )
    plain = server.run(script, folder=tmp_path, environment=os.environ)
    assert "RuntimeError: " in plain.stderr
    for options in ([], ["--warmup", "0", "--timed", "50", "--steps", "forward"]):
        ours = gpuprof("run", "-q", *options, "--force", "-o", "out.gpuprof", script)
        assert (ours.returncode, script_lines(ours.stderr)) == (1, script_lines(plain.stderr))
        assert "src/gpuprof/" not in ours.stderr


def script_lines(trace: str) -> list[str]:
    """Lines of a traceback that are not about torch's own frames."""
    return [line for line in trace.splitlines() if "script.py" in line or line[0] != " "]


def test_main_has_the_builtins_that_python_gives_it(gpuprof: Gpuprof) -> None:
    ours = gpuprof("run", "-q", "-c", "print(type(__builtins__).__name__)")
    assert ours.stdout == "module\n"


def test_a_syntax_error_is_told_as_python_tells_it(tmp_path: Path, gpuprof: Gpuprof) -> None:
    script = write(tmp_path, "def broken(:\n    pass\n")
    ours = gpuprof("run", "-o", "out.gpuprof", script)
    assert ours.returncode == 1
    assert "SyntaxError" in ours.stderr
    assert "src/gpuprof/" not in ours.stderr
    assert not (tmp_path / "out.gpuprof").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "absent.py"], "absent.py: no such file"),
        (["run", "-m", "no.such.module"], "no module named no.such.module"),
        (["run", "-o", "missing/out.gpuprof", "-c", "print(1)"], "not a folder"),
        (["run", "--steps", "range", "-c", "print(1)"], "--step-range"),
    ],
)
def test_what_cannot_run_is_one_line(
    gpuprof: Gpuprof, arguments: list[str], complaint: str
) -> None:
    ours = gpuprof(*arguments)
    assert ours.returncode != 0
    assert ours.stdout == ""
    assert ours.stderr.startswith("gpuprof: ")
    assert complaint in ours.stderr
    assert len(ours.stderr.splitlines()) == 1


def test_an_existing_capture_is_refused_before_the_script_starts(
    tmp_path: Path, gpuprof: Gpuprof
) -> None:
    (tmp_path / "out.gpuprof").mkdir()
    refused = gpuprof("run", "-o", "out.gpuprof", "-c", "print('started')")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "--force" in refused.stderr
    forced = gpuprof("run", "--force", "-o", "out.gpuprof", "-c", "print('started')")
    assert (forced.returncode, forced.stdout) == (0, "started\n")


@pytest.mark.parametrize(
    ("number", "ending"),
    [
        (signal.SIGTERM, "sigterm"),
        (signal.SIGHUP, "sighup"),
        (signal.SIGINT, "interrupted"),
    ],
)
def test_a_signal_keeps_the_capture(
    tmp_path: Path,
    gpuprof_environment: dict[str, str],
    server: ForkServer,
    number: signal.Signals,
    ending: str,
) -> None:
    script = write(
        tmp_path, TRAINING + "import time\ntrain(5)\nprint('ready', flush=True)\ntime.sleep(60)"
    )
    process = subprocess.Popen(
        [*server.command, "-m", "gpuprof", "run", "-o", "out.gpuprof", script],
        cwd=tmp_path,
        env=gpuprof_environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    process.communicate(timeout=60)
    # By the signal, as python: a shell ends its loop, and a scheduler sees what it was.
    assert process.returncode == -number
    capture = storage.load(tmp_path / "out.gpuprof")
    assert capture.processes[0].ending == ending
    assert matmul_calls(capture) > 0


def test_os_exit_keeps_the_capture(tmp_path: Path, gpuprof: Gpuprof) -> None:
    script = write(tmp_path, TRAINING + "import os\ntrain(4)\nos._exit(5)")
    assert gpuprof("run", "-q", "-o", "out.gpuprof", script).returncode == 5
    capture = storage.load(tmp_path / "out.gpuprof")
    assert (capture.processes[0].ending, capture.processes[0].exit_code) == ("exit", 5)
    assert matmul_calls(capture) > 0


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_and_threads_do_not_disturb_it(
    tmp_path: Path, gpuprof: Gpuprof, method: str
) -> None:
    script = write(
        tmp_path,
        TRAINING.replace("\ndef train", "\nimport multiprocessing, os, threading\ndef train")
        + textwrap.dedent(f"""
        def work(n):
            return sum(range(n))
        if __name__ == "__main__":
            context = multiprocessing.get_context("{method}")
            thread = threading.Thread(target=work, args=(1000,))
            thread.start()
            with context.Pool(2) as pool:
                print(pool.map(work, [10, 20]))
            train(20)
            thread.join()
            if "{method}" == "fork":
                child = os.fork()
                if child == 0:
                    raise SystemExit(3)
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """),
    )
    ours = gpuprof("run", "-q", "-o", "out.gpuprof", script)
    expected = "[45, 190]\n" + ("3\n" if method == "fork" else "")
    assert (ours.returncode, ours.stdout, ours.stderr) == (0, expected, "")
    capture = storage.load(tmp_path / "out.gpuprof")
    assert phases(capture).count("timed") == 10
    assert phases(capture).count("profiled") == 3


LOOP = """
import torch
import gpuprof
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU())
x = torch.randn(4, 32)
"""
OPTIMIZED = LOOP + "optimizer = torch.optim.Adam(model.parameters())\n"


@pytest.mark.parametrize(
    ("name", "options", "source", "found_by"),
    [
        (
            "optimizer",
            [],
            OPTIMIZED + "for _ in range(20):\n    model(x).sum().backward()\n    optimizer.step()",
            "optimizer steps (Adam)",
        ),
        (
            "accumulated gradients",
            [],
            OPTIMIZED
            + "for i in range(80):\n    model(x).sum().backward()\n"
            + "    if i % 4 == 3: optimizer.step()",
            "optimizer steps (Adam)",
        ),
        (
            "forward",
            [],
            LOOP + "with torch.no_grad():\n    for _ in range(20): model(x)",
            "forward calls of Sequential",
        ),
        (
            "explicit",
            [],
            OPTIMIZED
            + "for _ in range(20):\n    model(x).sum().backward()\n    optimizer.step()\n"
            + "    gpuprof.step()",
            "gpuprof.step() calls",
        ),
        (
            "torch.profiler",
            [],
            LOOP
            + "from torch.profiler import profile, schedule\n"
            + "p = profile(schedule=schedule(wait=1000, warmup=1, active=1))\n"
            + "p.start()\nfor _ in range(20):\n    model(x)\n    p.step()\np.stop()",
            "torch.profiler steps",
        ),
        (
            "range",
            ["--step-range", "iteration"],
            LOOP
            + "import nvtx\nfor _ in range(20):\n"
            + "    with nvtx.annotate('iteration'): model(x)",
            "NVTX ranges named 'iteration'",
        ),
        (
            "forced",
            ["--steps", "forward"],
            OPTIMIZED + "for _ in range(20):\n    model(x).sum().backward()\n    optimizer.step()",
            "forward calls of Sequential",
        ),
    ],
)
def test_steps_are_found(
    tmp_path: Path, gpuprof: Gpuprof, name: str, options: list[str], source: str, found_by: str
) -> None:
    script = write(tmp_path, source)
    ours = gpuprof("run", "-q", "-o", "out.gpuprof", *options, script)
    assert (ours.returncode, ours.stderr) == (0, "")
    capture = storage.load(tmp_path / "out.gpuprof")
    assert capture.processes[0].steps_found_by == found_by
    assert phases(capture).count("timed") == 10
    assert phases(capture).count("profiled") == 3
    assert capture.kernels["step"].drop_nulls().n_unique() == 3


@pytest.mark.parametrize(
    ("steps", "timed", "profiled"), [(1, 0, 1), (6, 3, 2), (14, 10, 2), (15, 10, 1)]
)
def test_a_short_script_is_shown_by_its_first_steps(
    tmp_path: Path, gpuprof: Gpuprof, steps: int, timed: int, profiled: int
) -> None:
    script = write(tmp_path, TRAINING + f"train({steps})")
    ours = gpuprof("run", "-q", "-o", "out.gpuprof", script)
    assert (ours.returncode, ours.stderr) == (0, "")
    capture = storage.load(tmp_path / "out.gpuprof")
    assert phases(capture).count("timed") == timed
    assert phases(capture).count("profiled") == profiled
    assert matmul_calls(capture) > 0


def test_a_script_without_steps_is_one_step(tmp_path: Path, gpuprof: Gpuprof) -> None:
    script = write(
        tmp_path, "import torch\na = torch.randn(128, 128)\nfor _ in range(30): a = (a @ a).tanh()"
    )
    ours = gpuprof("run", "-o", "out.gpuprof", script)
    assert ours.returncode == 0
    capture = storage.load(tmp_path / "out.gpuprof")
    assert phases(capture) == ["profiled"]
    assert matmul_calls(capture) == 30
    assert "the whole script" in ours.stderr


def test_a_script_that_profiles_itself_keeps_its_profile(tmp_path: Path, gpuprof: Gpuprof) -> None:
    script = write(
        tmp_path,
        TRAINING
        + textwrap.dedent("""
        from torch.profiler import profile
        with profile() as p:
            train(2)
        print(sum(e.count for e in p.key_averages() if e.key == "aten::addmm"))
        train(20)
        """),
    )
    ours = gpuprof("run", "-q", "-o", "out.gpuprof", script)
    assert (ours.returncode, ours.stdout, ours.stderr) == (0, "2\n", "")
    capture = storage.load(tmp_path / "out.gpuprof")
    assert phases(capture).count("timed") == 10
    assert phases(capture).count("profiled") == 3


def test_stop_after_ends_the_script(tmp_path: Path, gpuprof: Gpuprof) -> None:
    script = write(tmp_path, TRAINING + "train(20)\nprint('not reached')")
    ours = gpuprof(
        "run", "-q", "--stop-after", "--warmup", "1", "--timed", "2", "--profiled", "1",
        "-o", "out.gpuprof", script,
    )  # fmt: skip
    assert (ours.returncode, ours.stdout) == (0, "")
    capture = storage.load(tmp_path / "out.gpuprof")
    assert (phases(capture).count("timed"), phases(capture).count("profiled")) == (2, 1)


def test_regions_and_nvtx_ranges_become_ranges(tmp_path: Path, gpuprof: Gpuprof) -> None:
    script = write(
        tmp_path,
        OPTIMIZED
        + "import nvtx\nfor _ in range(20):\n"
        + "    with gpuprof.region('forward', flops=8192, bytes=512):\n"
        + "        with nvtx.annotate('inner', domain='mine'): y = model(x)\n"
        + "    y.sum().backward()\n    optimizer.step()",
    )
    assert gpuprof("run", "-q", "-o", "out.gpuprof", script).returncode == 0
    ranges = storage.load(tmp_path / "out.gpuprof").ranges
    region = ranges.filter(ranges["domain"] == "region")
    assert region["name"].unique().to_list() == ["forward"]
    assert region["flops"].unique().to_list() == [8192]
    assert region.height >= 3
    assert ranges.filter(ranges["domain"] == "mine")["name"].unique().to_list() == ["inner"]


def test_the_summary_names_the_steps_and_the_next_command(tmp_path: Path, gpuprof: Gpuprof) -> None:
    script = write(tmp_path, TRAINING + "train(20)")
    ours = gpuprof("run", "-o", "out.gpuprof", script)
    assert ours.stdout == ""
    assert "optimizer steps (SGD)" in ours.stderr
    assert ours.stderr.rstrip().endswith("gpuprof report out.gpuprof")
    analysis = json.loads((tmp_path / "out.gpuprof" / "analysis.json").read_bytes())
    assert analysis["steps"]["timed"] == 10
    # Forward and backward alike.
    ops = storage.load(tmp_path / "out.gpuprof").ops
    products = ops.filter(ops["name"].is_in(["aten::addmm", "aten::mm"]))
    (place,) = products.select("module", "file", "line", "function").unique().rows()
    line = next(
        number
        for number, text in enumerate((tmp_path / script).read_text().splitlines(), 1)
        if "model(torch.randn" in text
    )
    assert place == ("Linear", "script.py", line, "train")
    assert analysis["modules"]["rows"]
