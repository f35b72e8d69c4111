"""`gpuprof run --wait` and `gpuprof snap`: captures of a real program, as often as asked."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from training_script import FEW, write

Gpuprof = Callable[..., "subprocess.CompletedProcess[str]"]

# It goes on until each capture is there.
PROGRAM = """
from pathlib import Path
import subprocess
def snap(*options):
    command = [sys.executable, "-m", "gpuprof", "snap", *options, str(os.getpid())]
    return subprocess.run(command, stdout=subprocess.PIPE).stdout.decode()
def until_stored(name):
    while not Path(name, "analysis.json").exists():
        train(1)
        time.sleep(0.01)
until_stored("out.1.gpuprof")
print(signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL)
answer = snap("--json")
until_stored("out.2.gpuprof")
print(answer)
sys.exit(3)
"""


def test_a_step_and_a_signal_begin_captures_of_which_the_newest_are_kept(
    tmp_path: Path, gpuprof: Gpuprof, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = write(tmp_path, PROGRAM)
    options = ("--wait", "--at-step", "5", "--captures", "1", *FEW, "-o", "out.gpuprof")
    done = gpuprof("run", *options, script)
    assert done.returncode == 3, done.stderr
    before, _, answer = done.stdout.partition("\n")
    assert before == "True"
    asked = json.loads(answer)["asked"]
    assert (asked["title"], asked["output"]) == ("script.py", str(tmp_path / "out.gpuprof"))
    assert [path.name for path in tmp_path.glob("*.gpuprof")] == ["out.2.gpuprof"]
    assert "out.1.gpuprof was removed: --captures 1" in done.stderr
    analysis = json.loads((tmp_path / "out.2.gpuprof" / "analysis.json").read_bytes())
    assert analysis["title"] == "script.py (gpuprof snap)"
    assert analysis["steps"]["profiled"] == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--captures", "3"), "--captures goes with --wait"),
        (("--wait", "--stop-after"), "--wait and --stop-after do not go together"),
        (("--wait", "-o", "a.html"), "--wait and -o a.html do not go together"),
        (("--wait", "--signal", "TERM"), "is not USR1, USR2 or RTMIN+N"),
    ],
)
def test_options_that_do_not_go_together(
    gpuprof: Gpuprof, options: tuple[str, ...], said: str
) -> None:
    done = gpuprof("run", *options, "script.py")
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
