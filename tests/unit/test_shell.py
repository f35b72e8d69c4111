"""What a shell wants of a command: completion, a man page, and a log of what it does."""

import argparse
import logging
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path

import pytest
from checkout import needs_checkout

from gpuprof.profiler import log
from gpuprof.profiler.cli import COMMANDS, main, make_parser
from gpuprof.profiler.commands.completion import SHELLS

ROOT = Path(__file__).parents[2]


def commands(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, list[str]]]:
    """Names of all commands and of their actions, and the options that are shown of each."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner, its_parser in action.choices.items():
                shown = [one for one in its_parser._actions if one.help != argparse.SUPPRESS]
                whole = f"{name} {inner}".strip()
                yield whole, [option for one in shown for option in one.option_strings]
                yield from commands(its_parser, whole)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_completion_of_each_shell_knows_every_command_and_option(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for name, options in commands(make_parser()):
        assert name.split()[-1] in script
        # fish names them without their dashes.
        assert [one for one in options if one.lstrip("-") not in script] == []
    assert "no-ceilings" not in script


def test_bash_completes_commands_options_choices_and_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["completion", "bash"])
    (tmp_path / "completion").write_text(capsys.readouterr().out)
    (tmp_path / "train.py").touch()
    (tmp_path / "old.gpuprof").mkdir()
    lines = ["ru", "run --stop", "run --steps o", "run tr", "summary ol", "gate self", "mfu --laye"]
    asked = "\n".join(
        f"COMP_WORDS=(gpuprof {line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()\n"
        '_shtab_gpuprof; echo "${COMPREPLY[*]}"'
        for line in lines
    )
    done = subprocess.run(
        ["bash", "-c", f"source ./completion\n{asked}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        *("run", "--stop-after", "optimizer", "train.py", "old.gpuprof", "selftest", "--layers")
    ]
    assert done.stderr == ""


@needs_checkout
def test_the_man_page_has_every_command_and_option() -> None:
    page = run_path(str(ROOT / "scripts" / "man_page.py"))["man_page"]()
    sections = dict(re.findall(r"^\.SS gpuprof (.+)\n((?:(?!\.S[SH] ).*\n)*)", page, re.M))
    assert [name.replace("\\-", "-") for name in sections] == [
        name for name, _ in commands(make_parser())
    ]
    for (_, options), text in zip(commands(make_parser()), sections.values(), strict=True):
        assert [one for one in options if one.replace("-", "\\-") not in text] == []
    # A line of text that begins with a dot would be lost.
    assert {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))} == {
        *(".TH", ".SH", ".SS", ".TP", ".PP", ".nf", ".fi", ".B", ".I", ".IR")
    }
    assert "Trace files" not in page or "\\&.parquetdir" in page


@pytest.fixture
def _own_logger() -> Iterator[None]:
    """The logger as other tests expect it."""
    logger = logging.getLogger("gpuprof")
    propagate = logger.propagate
    yield
    log.write_log(0)
    logger.propagate = propagate


@pytest.mark.usefixtures("_own_logger")
def test_what_is_done_is_told_on_stderr_where_asked_and_not_to_the_root_logger(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert main(["completion", "bash"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert main(["completion", "bash", "-v"]) == 0
    verbose_out, err = capfd.readouterr()
    assert verbose_out == out
    assert re.search(r"^\d\d:\d\d:\d\d\.\d{3} gpuprof\.\S+: settings: ", err, re.M)
    assert main(["summary", "-vv", "nothing.gpuprof"]) == 1
    err = capfd.readouterr().err
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("gpuprof: nothing.gpuprof: no such capture")
    assert log.verbosity() == 2
    assert [record for record in caplog.records if record.name.startswith("gpuprof")] == []


def test_every_command_can_be_verbose() -> None:
    names = [command.name for command in COMMANDS]
    assert {name for name, options in commands(make_parser()) if "-v" in options} >= set(names)
    for words in (["gate", "-vv", "plan"], ["gate", "plan", "-vv"], ["gate", "-v", "plan", "-vv"]):
        assert make_parser().parse_args(words).verbose == 2
    assert make_parser().parse_args(["gate", "plan"]).verbose == 0
