"""A program forked from the tests' server meets what a new interpreter gives it."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from fork_server import ForkServer

SURROUNDINGS = """
    import os, sys
    print(sys.argv, sys.orig_argv[1:], sys.path[:2], __name__, __file__, os.getcwd())
    print(os.environ["MARK"], sys.stdin.read(), sys.stdout.seekable(), sys.stdout.isatty())
    print([name for name in sys.modules if name.partition(".")[0] == "torch"])
    import torch.nn.functional
    print(torch, torch.__spec__.name, sys.modules["torch.nn.functional"].linear)
    print("torch._dynamo" in sys.modules, hasattr(sys.modules["torch"], "_dynamo"))
    """


@pytest.mark.parametrize(
    ("source", "status"),
    [
        (SURROUNDINGS, 0),
        ("import sys\nsys.exit(7)", 7),
        ("raise SystemExit", 0),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)", -15),
        ("def fail():\n    raise ValueError('no')\nfail()", 1),
        ("import atexit, threading\natexit.register(print, 'at exit')\n"
         "threading.Timer(0.1, print, ['of a thread']).start()", 0),
    ],
    ids=["surroundings", "exit", "exit without a code", "signal", "exception", "end"],
)  # fmt: skip
def test_a_program_does_what_it_does_in_a_new_interpreter(
    tmp_path: Path, server: ForkServer, source: str, status: int
) -> None:
    (tmp_path / "script.py").write_text(textwrap.dedent(source))
    folders = [str(tmp_path / "packages"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "MARK": "here", "PYTHONPATH": os.pathsep.join(folders)}
    alone = subprocess.run(
        [sys.executable, "script.py", "a", "-b"],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    forked = server.run("script.py", "a", "-b", folder=tmp_path, environment=environment)
    assert (forked.stdout, forked.stderr) == (alone.stdout, alone.stderr)
    assert forked.returncode == alone.returncode == status


def test_a_program_that_hangs_is_killed(tmp_path: Path, server: ForkServer) -> None:
    (tmp_path / "script.py").write_text("import time\ntime.sleep(600)")
    with pytest.raises(subprocess.TimeoutExpired):
        server.run("script.py", folder=tmp_path, environment=os.environ, timeout_s=0.1)
    (tmp_path / "script.py").write_text("print(1)")
    assert server.run("script.py", folder=tmp_path, environment=os.environ).stdout == "1\n"


def test_what_others_start_is_forked_too_and_ends_with_who_asked_for_it(
    tmp_path: Path, server: ForkServer
) -> None:
    (tmp_path / "script.py").write_text(
        "import os, sys, time\n"
        "print(sys.argv, os.getcwd(), os.environ['MARK'], flush=True)\n"
        "if 'hang' in sys.argv: time.sleep(600)\n"
        "os.kill(os.getpid(), 15) if 'die' in sys.argv else sys.exit(7)\n"
    )

    def start(*arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*server.command, "script.py", *arguments],
            cwd=tmp_path,
            env={**os.environ, "MARK": "here"},
            stdout=subprocess.PIPE,
            text=True,
        )

    with start("hang") as hanging, start("die") as dying, start() as ending:
        assert ending.stdout is not None
        assert hanging.stdout is not None
        assert ending.stdout.read() == f"['script.py'] {tmp_path} here\n"
        assert (ending.wait(), dying.wait()) == (7, -15)
        assert hanging.stdout.readline() == f"['script.py', 'hang'] {tmp_path} here\n"
        hanging.kill()
        # The program's end closes its output.
        assert hanging.stdout.read() == ""
