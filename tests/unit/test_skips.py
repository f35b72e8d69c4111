"""A run says in its last line what it did not test, and CI fails on a skip it does not expect."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from browser import find_browser
from skips import EXPECTED_SKIPS, expected_reasons

TESTS = Path(__file__).parents[1]

SAMPLE = """
import pytest

def test_passes():
    pass

@pytest.mark.skipif(True, reason="needs a CUDA device")
@pytest.mark.parametrize("size", [1, 2])
def test_on_a_gpu(size):
    pass

def test_with_data():
    {skip}

@pytest.mark.xfail(reason="a fault that is known", strict=True)
def test_with_a_known_fault():
    assert False
"""


def run(folder: Path, *, ci: str, **files: str) -> "subprocess.CompletedProcess[str]":
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "skips", "-p", "no:cacheprovider", "-q", "."],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(TESTS / "support"),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": "--continue-on-collection-errors",
            "CI": ci,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_ci_fails_on_a_skip_it_does_not_expect_and_names_the_others(tmp_path: Path) -> None:
    sample = SAMPLE.format(skip='pytest.skip("no such data")')
    whole_file = 'import pytest\npytest.skip("no such module", allow_module_level=True)\n'
    done = run(tmp_path, ci="true", test_sample=sample, test_file=whole_file)
    assert done.returncode != 0
    assert "test_with_data was skipped, and CI does not expect that: no such data" in done.stdout
    assert "test_file.py was skipped, and CI does not expect that: no such module" in done.stdout


@pytest.mark.parametrize(
    ("ci", "skip", "last"),
    [
        ("true", "pass", "Not tested here: 2 (needs a CUDA device)"),
        (
            "",
            'pytest.skip("no such data")',
            "Not tested here: 2 (needs a CUDA device), 1 (no such data)",
        ),
    ],
)
def test_the_last_line_says_what_was_not_tested(
    tmp_path: Path, ci: str, skip: str, last: str
) -> None:
    done = run(tmp_path, ci=ci, test_sample=SAMPLE.format(skip=skip))
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] == last


def test_each_reason_that_ci_expects_is_one_of_a_test() -> None:
    literals = {
        literal
        for path in TESTS.rglob("*.py")
        for literal in re.findall(r'"([^"\n]+)"', path.read_text(encoding="utf-8"))
        if path != Path(__file__)
    }
    patterns = re.findall(r'^reason = "(.*)"$', EXPECTED_SKIPS.read_text(), re.MULTILINE)
    assert len(patterns) > 5
    assert [p for p in patterns if not any(re.fullmatch(p, text) for text in literals)] == []


def test_a_reason_may_hold_for_some_releases_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {}
    for torch in ("2.6.0+cu124", "2.13.0+cpu"):
        monkeypatch.setattr("skips.version", lambda _, torch=torch: torch)
        expected[torch] = expected_reasons()
    assert "this torch has no Muon" in expected["2.6.0+cu124"]
    assert "this torch has no Muon" not in expected["2.13.0+cpu"]
    assert "needs a CUDA device" in expected["2.13.0+cpu"]


def test_a_browser_is_found_by_the_variable_and_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("google-chrome", "my-browser"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CHROME_BIN", raising=False)
    assert find_browser() == str(tmp_path / "google-chrome")
    monkeypatch.setenv("CHROME_BIN", str(tmp_path / "my-browser"))
    assert find_browser() == str(tmp_path / "my-browser")
    # One that is gone is no reason to open no page.
    monkeypatch.setenv("CHROME_BIN", str(tmp_path / "gone"))
    assert find_browser() == str(tmp_path / "google-chrome")
