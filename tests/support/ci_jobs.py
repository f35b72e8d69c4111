"""Runs jobs as GitHub's and GitLab's runners do: what their files say, in bash.

Of GitHub: steps, composite actions, `if`, `env`, outputs and expressions, as far as
action.yml and docs/ci use them; an action of somebody else is what the test says it is. Of GitLab:
the variables and scripts of one job.
"""

import operator
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

# An action of somebody else: gets its inputs and the step's environment, returns its outputs.
Action = Callable[[dict[str, str], dict[str, str]], dict[str, str]]
Values = dict[str, Any]
_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}")
_TOKEN = re.compile(r"\s*(&&|\|\||==|!=|!|\(|\)|'[^']*'|[\w.-]+)")


def read_yaml(file: Path) -> Any:
    return msgspec.yaml.decode(file.read_bytes())


@dataclass
class GitHubRunner:
    """One job on one machine, with the repository checked out at `workspace`."""

    workspace: Path
    environment: dict[str, str]
    # By name without a version, such as "actions/cache".
    actions: Mapping[str, Action]
    # The contexts `github` and `runner`.
    github: Values = field(default_factory=dict)
    # Everything that steps printed.
    output: str = ""
    failed: bool = False

    def run(self, steps: list[Values], inputs: Mapping[str, str] | None = None) -> Values:
        """Run steps in their order; returns the contexts after the last."""
        contexts: Values = {
            "inputs": dict(inputs or {}),
            "github": self.github,
            "runner": {"os": "Linux", "arch": "X64"},
            "steps": {},
        }
        for step in steps:
            wanted = str(step.get("if", "success()"))
            # Without a word about the state of the job a condition asks for success, too.
            if not re.search(r"\b(always|success|failure|cancelled)\(\)", wanted):
                wanted = f"success() && ({wanted})"
            if not self._value(wanted, contexts):
                continue
            own = {k: self._text(v, contexts) for k, v in step.get("env", {}).items()}
            given = {k: self._text(v, contexts) for k, v in step.get("with", {}).items()}
            if "run" in step:
                outputs = self._shell(step, own, contexts)
            elif step["uses"].startswith("./"):
                outputs = self._composite(self.workspace / step["uses"], given)
            else:
                action = self.actions[step["uses"].partition("@")[0]]
                outputs = action(given, {**self.environment, **own})
            if "id" in step:
                contexts["steps"][step["id"]] = {"outputs": outputs}
        return contexts

    def _composite(self, folder: Path, given: dict[str, str]) -> dict[str, str]:
        action = read_yaml(folder / "action.yml")
        assert action["runs"]["using"] == "composite"
        assert given.keys() <= action["inputs"].keys()
        # GitHub refuses a step of a composite action that names no shell.
        assert all("shell" in step for step in action["runs"]["steps"] if "run" in step)
        inputs = {
            name: given.get(name, self._text(row.get("default", ""), {"github": self.github}))
            for name, row in action["inputs"].items()
        }
        contexts = self.run(action["runs"]["steps"], inputs)
        return {name: self._text(row["value"], contexts) for name, row in action["outputs"].items()}

    def _shell(self, step: Values, own: dict[str, str], contexts: Values) -> dict[str, str]:
        told = self.workspace.parent / "github-output"
        told.write_text("")
        folder = self.workspace / self._text(step.get("working-directory", "."), contexts)
        # As GitHub starts `shell: bash`.
        done = subprocess.run(
            [
                "bash",
                "--noprofile",
                "--norc",
                "-eo",
                "pipefail",
                "-c",
                self._text(step["run"], contexts),
            ],
            cwd=folder,
            env={**self.environment, **own, "GITHUB_OUTPUT": str(told)},
            capture_output=True,
            text=True,
            check=False,
        )
        self.output += done.stdout + done.stderr
        self.failed |= done.returncode != 0
        return dict(line.split("=", 1) for line in told.read_text().splitlines())

    def _text(self, text: Any, contexts: Values) -> str:
        return _EXPRESSION.sub(lambda found: _shown(self._value(found[1], contexts)), str(text))

    def _value(self, expression: str, contexts: Values) -> Any:
        states = {
            "always": True,
            "success": not self.failed,
            "failure": self.failed,
            "cancelled": False,
        }
        return _Expression(_TOKEN.findall(expression), contexts, states).value()


class _Expression:
    """The part of GitHub's expressions that compares, joins and negates."""

    def __init__(self, tokens: list[str], contexts: Values, states: dict[str, bool]) -> None:
        self._tokens = iter([*tokens, ""])
        self._next = next(self._tokens)
        self._contexts = contexts
        self._states = states

    def value(self) -> Any:
        found = self._and()
        while self._take("||"):
            other = self._and()
            found = found or other
        return found

    def _and(self) -> Any:
        found = self._compared()
        while self._take("&&"):
            other = self._compared()
            found = found and other
        return found

    def _compared(self) -> Any:
        found = self._single()
        for sign, compare in (("==", operator.eq), ("!=", operator.ne)):
            if self._take(sign):
                return compare(_shown(found), _shown(self._single()))
        return found

    def _single(self) -> Any:
        if self._take("!"):
            return not self._single()
        if self._take("("):
            found = self.value()
            assert self._take(")")
            return found
        token, self._next = self._next, next(self._tokens)
        if token.startswith("'"):
            return token[1:-1]
        if self._take("("):
            assert self._take(")")
            return self._states[token]
        found = self._contexts
        for name in token.split("."):
            found = found.get(name, {}) if isinstance(found, dict) else {}
        return found

    def _take(self, token: str) -> bool:
        if self._next != token:
            return False
        self._next = next(self._tokens)
        return True


def _shown(value: Any) -> str:
    # What a context lacks is null, and shown as nothing.
    return "" if value == {} or value is None else str(value)


def run_gitlab_job(
    job: Values, folder: Path, environment: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    """The scripts of `job` in one shell, as GitLab's runner joins them, in its variables."""
    values = dict(environment)
    for name, value in job.get("variables", {}).items():
        values.setdefault(name, _expanded(str(value), values))
    lines = [*job.get("before_script", ()), *job["script"]]
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", "\n".join(lines)],
        cwd=folder,
        env=values,
        capture_output=True,
        text=True,
        check=False,
    )


def _expanded(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\$\{?(\w+)\}?", lambda found: values.get(found[1], ""), text)


def with_commands(
    environment: Mapping[str, str], folder: Path, commands: Mapping[str, str]
) -> dict[str, str]:
    """`environment` with scripts of bash first on PATH, which are written to `folder`."""
    folder.mkdir(exist_ok=True)
    for name, script in commands.items():
        (folder / name).write_text(f"#!/bin/bash\n{script}\n")
        (folder / name).chmod(0o755)
    return {**environment, "PATH": os.pathsep.join([str(folder), environment["PATH"]])}


def files_of(patterns: str, folder: Path) -> Iterator[Path]:
    """The files of an artifact or a cache: a path a line."""
    for line in patterns.split("\n"):
        place = folder / line.strip()
        if line.strip() and place.is_file():
            yield place
        elif line.strip() and place.is_dir():
            yield from (path for path in place.rglob("*") if path.is_file())
