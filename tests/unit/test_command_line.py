"""The command line: where options may stand, and what is said to a word that is none of ours."""

import itertools
from pathlib import Path

import pytest

from gpuprof.profiler.cli import COMMANDS, main, make_parser

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (("history", "add", "a.json", "b.json"), (("--db", "h"), ("--branch", "x"), ("-f",))),
        (("history", "export", "a.parquet"), (("-f",), ("--metric=mfu",))),
        (("history", "plot", "a.html"), (("-f",), ("--benchmark", "t*"))),
        (("history", "show"), (("--metric", "mfu"), ("--db", "h"))),
        (("baseline", "save", "v1"), (("--processes", "2"), ("-f",), ("--from", "g"))),
        (("baseline", "pin", "v1"), (("--folder", "f"),)),
        (("baseline", "bless", "v1"), (("--reason", "because"), ("--folder", "f"))),
        (("baseline", "list"), (("--folder", "f"),)),
        (("gate", "calibrate"), (("--pairs", "3"), ("--rebuild",), ("--only", "x"))),
        (("gate", "plan"), (("--effect", "3%"), ("--power", "90%"))),
        (("gate", "selftest"), (("--json", "a.json"), ("-f",), ("--recording", "r"))),
        (("analyze", "a.json", "b.ncu-rep"), (("-q",), ("-o", "x"), ("--rank", "1"))),
        (("compare", "a", "b"), (("-f",), ("--top", "3"))),
        (("bench", "gemm", "softmax"), (("--check",), ("--json", "f.json"), ("--seed", "1"))),
        (("mfu", "a.gpuprof"), (("--json",), ("--params", "7B"))),
        (("report", "a.gpuprof"), (("-o", "x.html"), ("-f",))),
    ],
)
def test_options_may_stand_anywhere_after_the_command(
    words: tuple[str, ...], options: tuple[tuple[str, ...], ...]
) -> None:
    # The gate's actions are commands of their own, whose options follow them.
    first = 2 if words[0] == "gate" else 1
    command, names = words[:first], words[first:]
    flat = tuple(itertools.chain(*options))
    expected = make_parser().parse_args([*words, *flat])
    for place in range(len(names) + 1):
        mixed = [*command, *names[:place], *flat, *names[place:]]
        assert make_parser().parse_args(mixed) == expected
    pieces = itertools.zip_longest(((name,) for name in names), options, fillvalue=())
    woven = [word for pair in pieces for piece in pair for word in piece]
    assert make_parser().parse_args([*command, *woven]) == expected


def test_after_two_dashes_a_name_may_begin_with_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["summary", "--", "-x"]) == 1
    assert capsys.readouterr().err.startswith("gpuprof: -x: no such capture")


@pytest.mark.parametrize("words", [(command.name,) for command in COMMANDS] + [("gate", "plan")])
def test_an_unknown_option_shows_the_usage_of_its_own_command(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--nonsense"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"Usage: gpuprof {' '.join(words)} ")
    assert said.splitlines()[-1].startswith(f"gpuprof {' '.join(words)}: error: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train.py", "--lr", "0.1"), "did you mean `gpuprof run train.py --lr 0.1`?"),
        (("python3", "train.py"), "did you mean `gpuprof run train.py`?"),
        (("-m", "pkg.train"), "did you mean `gpuprof run -m pkg.train`?"),
        (("repotr", "a b.gpuprof"), "did you mean `gpuprof report 'a b.gpuprof'`?"),
        (("diff", "a", "b"), "`gpuprof --help` lists them"),
        (("help", "repotr"), "did you mean `gpuprof report --help`?"),
        ((str(DATA / "kineto" / "recompute.json"),), "did you mean `gpuprof analyze /"),
        ((str(DATA / "captures" / "h100_cuda_graph"),), "did you mean `gpuprof summary /"),
    ],
)
def test_a_word_that_is_no_command_gets_a_hint(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    first = words[1] if words[0] == "help" else words[0]
    assert line.startswith(f"gpuprof: there is no command {first}; ")
    assert said in line


def test_a_script_after_gate_gets_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("gate", "train.py", "--base", "main")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "write [[target]] and script = 'train.py' into gpuprof.toml" in line


@pytest.mark.parametrize("words", [("help",), ("help", "report")])
def test_help_is_a_word_too(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for arguments in (words, (*words[1:], "--help")):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


@pytest.mark.parametrize("command", ["summary", "report", "mfu"])
def test_a_trace_in_a_captures_place_points_to_analyze(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = DATA / "kineto" / "recompute.json"
    more = ("-o", str(tmp_path / "a.html")) if command == "report" else ()
    assert main([command, str(trace), *more]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"`gpuprof analyze {trace}` makes one of a trace")
