"""The action for GitHub and the template for GitLab, run as their runners do."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmark_results import store, vllm
from ci_jobs import GitHubRunner, files_of, read_yaml, run_gitlab_job, with_commands
from fork_server import ForkServer
from junitparser import JUnitXml

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "ci"

SCRIPT = """\
import torch, gpuprof
x = torch.ones(8, 8)
for _ in range(24):
    x @ x
    gpuprof.step()
"""
CONFIGURATION = """\
[gate]
pairs = [2]
[[target]]
script = "speed.py"
warmup = 1
timed = 20
profiled = 1
[[budget]]
# Without statistics, so that two pairs on a busy machine decide it.
time = { regress = 20.0 }
kernels = { max_new = 0 }
"""
# Installs nothing, and says what it was asked to.
PIP = 'echo "installed $*"'
PYTHON = f'[ "$2" = pip ] && echo "installed ${{@:4}}" || exec {sys.executable} "$@"'
# In place of gpuprof where only the action's own words are tested. Calibrating leaves a session,
# a baseline leaves its file.
STUB = """\
echo "gpuprof $*"
case "$1 $2" in
  "gate calibrate")
    mkdir -p "$XDG_CACHE_HOME/gpuprof/gate"
    touch "$XDG_CACHE_HOME/gpuprof/gate/session-1.json";;
  "baseline save") mkdir -p gpuprof-baselines; touch "gpuprof-baselines/$3.json.gz";;
esac
"""


@pytest.fixture
def forked(server: ForkServer) -> str:
    """In place of gpuprof where it measures: the same, forked from what has torch ready."""
    return f'exec {shlex.join(server.command)} -m gpuprof "$@"'


@pytest.fixture
def merge_request(tmp_path: Path) -> Path:
    """A repository whose last commit, a merge, adds a kernel to a step."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "gpuprof.toml").write_text(CONFIGURATION)
    (folder / "speed.py").write_text(SCRIPT)
    (folder / ".github" / "actions" / "gpuprof-gate").mkdir(parents=True)
    shutil.copy(ROOT / "action.yml", folder / ".github" / "actions" / "gpuprof-gate")
    commit(folder, "base")
    git(folder, "checkout", "-q", "-b", "change")
    (folder / "speed.py").write_text(SCRIPT.replace("x @ x", "(x @ x).cumsum(0)"))
    commit(folder, "a kernel more")
    git(folder, "checkout", "-q", "main")
    git(folder, *IDENTITY, "merge", "-q", "--no-ff", "-m", "merge", "change")
    return folder


IDENTITY = ("-c", "user.email=a@b.c", "-c", "user.name=a")


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def commit(folder: Path, message: str) -> None:
    git(folder, "add", ".")
    git(folder, *IDENTITY, "commit", "-q", "-m", message)


class GitHub:
    """GitHub's side: its cache, artifacts and comments, over several jobs."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.summary = folder.parent / "summary.md"
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environment = {
            **environment,
            "PATH": path,
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(folder),
            "GITHUB_STEP_SUMMARY": str(self.summary),
        }
        self.caches: dict[str, dict[Path, bytes]] = {}
        self.artifacts: dict[str, list[str]] = {}
        self.scripts: list[tuple[str, dict[str, str]]] = []

    def run(
        self,
        arguments: dict[str, str],
        *,
        commands: dict[str, str] | None = None,
        repository: str = "us/project",
        run_id: int = 1,
    ) -> GitHubRunner:
        """The job of docs/ci/github.yml, with other `arguments` for the action."""
        steps = read_yaml(EXAMPLES / "github.yml")["jobs"]["gate"]["steps"]
        steps[-1]["with"] |= arguments
        saving: list[Callable[[], None]] = []

        def cache(given: dict[str, str], environment: dict[str, str]) -> dict[str, str]:
            prefix = given["restore-keys"]
            found = [self.caches[key] for key in reversed(self.caches) if key.startswith(prefix)]
            for path, content in found[0].items() if found else ():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            saving.append(
                lambda: self.caches.update(
                    {
                        given["key"]: {
                            path: path.read_bytes() for path in files_of(given["path"], self.folder)
                        }
                    }
                )
            )
            return {}

        def upload(given: dict[str, str], environment: dict[str, str]) -> dict[str, str]:
            files = files_of(given["path"], self.folder)
            self.artifacts[given["name"]] = [path.name for path in files]
            return {}

        def script(given: dict[str, str], environment: dict[str, str]) -> dict[str, str]:
            self.scripts.append((given["script"], environment))
            return {}

        runner = GitHubRunner(
            self.folder,
            with_commands(
                self.environment,
                self.folder.parent / "commands",
                {"pip": PIP, "python": PYTHON, **(commands or {})},
            ),
            {
                "actions/checkout": lambda given, environment: {},
                "actions/setup-python": lambda given, environment: {},
                "actions/cache": cache,
                "actions/upload-artifact": upload,
                "actions/github-script": script,
            },
            {
                "repository": "us/project",
                "event": {"pull_request": {"head": {"repo": {"full_name": repository}}}},
                "run_id": run_id,
                "run_attempt": 1,
                "token": "secret",
            },
        )
        runner.run(steps)
        if not runner.failed:
            for save in saving:
                save()
        return runner


def test_the_github_job_fails_a_change_with_annotations_a_summary_and_a_comment(
    merge_request: Path, gpuprof_environment: dict[str, str], forked: str
) -> None:
    github = GitHub(merge_request, gpuprof_environment)

    runner = github.run({}, commands={"gpuprof": forked})

    assert runner.failed, runner.output
    assert "installed install -e ." in runner.output
    assert "installed gpuprof-roofline" in runner.output
    (error,) = re.findall(r"^::error .*$", runner.output, re.MULTILINE)
    # The line that launches the new kernel.
    assert error.startswith("::error file=speed.py,line=4,title=gpuprof gate%3A speed kernel names")
    body = (merge_request / "gate.md").read_text()
    assert github.summary.read_text() == body.partition("\n")[2]
    assert github.artifacts == {"gpuprof-gate": ["gate.xml", "gate.json", "report.html"]}
    # The comment is found again by its first line, and the gate leaves nothing to commit but it.
    assert body.startswith("<!-- gpuprof gate -->\n")
    assert [Path(e["BODY_FILE"]).name for _, e in github.scripts] == ["gate.md"]
    assert git(merge_request, "status", "--short").splitlines() == ["?? gate.md", "?? gate.xml"]
    assert len(git(merge_request, "worktree", "list").splitlines()) == 1


def test_the_action_judges_results_of_other_tools(
    merge_request: Path, gpuprof_environment: dict[str, str]
) -> None:
    for run in range(3):
        store(merge_request / f"results/base {run}.json", vllm(run, minutes=4 * run))
        store(merge_request / f"results/head {run}.json", vllm(run + 9, minutes=4 * run + 2))
    (merge_request / "gpuprof.toml").write_text("[gate]\npairs = [3]\n")
    github = GitHub(merge_request, gpuprof_environment)

    arguments = "results --base results/'base '*.json --head results/'head '*.json"
    runner = github.run({"arguments": arguments, "install": "false"}, repository="fork/project")

    assert not runner.failed, runner.output
    assert "PASS: 1 benchmark" in runner.output
    assert "installed gpuprof-roofline" not in runner.output
    # A fork may not comment; its page is there all the same.
    assert github.scripts == []
    assert "report.html" in github.artifacts["gpuprof-gate"]


def test_calibrations_and_baselines_outlive_the_machine(
    merge_request: Path, gpuprof_environment: dict[str, str], tmp_path: Path
) -> None:
    environment = {**gpuprof_environment, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    github = GitHub(merge_request, environment)
    wanted = {"calibrate-pairs": "7", "baseline": "main", "machine": "h100"}

    first = github.run(wanted, commands={"gpuprof": STUB}, run_id=1)
    assert "gpuprof gate calibrate --pairs 7" in first.output
    assert "gpuprof baseline save main --from gpuprof-gate --force" in first.output

    # The next job starts on a machine without either.
    shutil.rmtree(tmp_path / "cache")
    shutil.rmtree(merge_request / "gpuprof-baselines")
    failing = f'[ "$1 $2" != "gate --base" ] || exit 4\n{STUB}'
    second = github.run(wanted, commands={"gpuprof": failing}, run_id=2)
    assert "calibrate" not in second.output
    assert (merge_request / "gpuprof-baselines" / "main.json.gz").is_file()
    # What did not pass is no baseline, and its cache is not kept.
    assert second.failed
    assert "baseline save" not in second.output
    assert list(github.caches) == ["gpuprof-Linux-X64-h100-1-1"]

    # Runners with other GPUs have a cache of their own.
    shutil.rmtree(tmp_path / "cache")
    third = github.run({**wanted, "machine": "b200"}, commands={"gpuprof": STUB}, run_id=3)
    assert "gpuprof gate calibrate --pairs 7" in third.output


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_the_comment_is_made_once_and_then_updated(tmp_path: Path) -> None:
    steps = read_yaml(ROOT / "action.yml")["runs"]["steps"]
    (script,) = [s["with"]["script"] for s in steps if "github-script" in s.get("uses", "")]
    # github-script gives these names to a script that it wraps into an asynchronous function.
    program = f"""
const comments = JSON.parse(process.argv[2]), calls = [];
const github = {{
  paginate: async (list, where) => comments,
  rest: {{ issues: {{
    createComment: async (what) => calls.push(["create", what]),
    updateComment: async (what) => calls.push(["update", what]),
  }} }},
}};
const context = {{ repo: {{ owner: "us", repo: "project" }}, issue: {{ number: 5 }} }};
(async () => {{ {script} }})().then(() => console.log(JSON.stringify(calls)));
"""
    (tmp_path / "script.js").write_text(program)
    (tmp_path / "gate.md").write_text("<!-- gpuprof gate -->\nPASS\n")

    def calls(comments: list[dict[str, object]], file: str = "gate.md") -> list[list[object]]:
        done = subprocess.run(
            ["node", "script.js", json.dumps(comments)],
            cwd=tmp_path,
            env={**os.environ, "BODY_FILE": file},
            capture_output=True,
            text=True,
            check=True,
        )
        found: list[list[object]] = json.loads(done.stdout)
        return found

    where, body = {"owner": "us", "repo": "project"}, "<!-- gpuprof gate -->\nPASS\n"
    others = [{"id": 1, "body": "Looks good"}]
    assert calls([*others]) == [["create", {**where, "issue_number": 5, "body": body}]]
    ours = {"id": 2, "body": "<!-- gpuprof gate -->\nREGRESSED"}
    assert calls([*others, ours]) == [["update", {**where, "comment_id": 2, "body": body}]]
    # A gate that ended before it had a verdict leaves none.
    assert calls(others, "absent.md") == []


def test_the_gitlab_job_passes_what_is_the_same_with_its_test_results(
    merge_request: Path, gpuprof_environment: dict[str, str], forked: str
) -> None:
    job = read_yaml(EXAMPLES / "gitlab.yml")["gate"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {
        **gpuprof_environment,
        "PATH": path,
        "CI_PROJECT_DIR": str(merge_request),
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": git(merge_request, "rev-parse", "change"),
    }

    commands = {"pip": PIP, "gpuprof": forked}

    done = run_gitlab_job(
        job, merge_request, with_commands(environment, merge_request.parent / "bin", commands)
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "installed install -e . gpuprof-roofline" in done.stdout
    assert "::error" not in done.stdout
    suite = JUnitXml.fromfile(str(merge_request / job["artifacts"]["reports"]["junit"]))
    assert (suite.failures, suite.errors) == (0, 0)
    assert suite.tests >= 3
    assert [p for p in job["artifacts"]["paths"] if not (merge_request / p).is_file()] == []


def test_the_gitlab_job_calibrates_where_the_cache_has_nothing(
    merge_request: Path, gpuprof_environment: dict[str, str]
) -> None:
    job = read_yaml(EXAMPLES / "gitlab.yml")["gate"]
    environment = {
        name: value for name, value in gpuprof_environment.items() if name != "XDG_CACHE_HOME"
    } | {
        "CI_PROJECT_DIR": str(merge_request),
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": "0abc",
        "GPUPROF_CALIBRATE_PAIRS": "4",
    }
    commands = with_commands(
        environment, merge_request.parent / "bin", {"pip": PIP, "gpuprof": STUB}
    )

    first, second = (run_gitlab_job(job, merge_request, commands) for _ in range(2))

    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert "gpuprof gate calibrate --pairs 4" in first.stdout
    assert "calibrate" not in second.stdout
    gate = "gpuprof gate --base 0abc --force --junit gate.xml --html gate.html"
    assert gate in first.stdout
    assert gate in second.stdout
    # What it caches lies inside of the project, and the working tree stays clean.
    cached = [folder for folder in job["cache"]["paths"] if (merge_request / folder).is_dir()]
    assert ".cache/gpuprof/" in cached
    assert git(merge_request, "status", "--short") == ""
