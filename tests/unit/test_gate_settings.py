"""The gate's part of gpuprof.toml: what it means, and every way to get it wrong."""

from datetime import date
from pathlib import Path

import pytest

from gpuprof.collectors.errors import CommandError
from gpuprof.profiler.commands.gate import select
from gpuprof.profiler.configuration.file import Configuration, read_configuration
from gpuprof.profiler.configuration.targets import Target, distinct, target_from_command
from gpuprof.profiler.gate.rules import amount, fraction, suite_rules
from gpuprof.roofline.gate.suite import Rules, budgets_of


def read(folder: Path, text: str) -> Configuration:
    file = folder / "gpuprof.toml"
    file.write_text(text)
    return read_configuration(file)


def rules(folder: Path, text: str) -> Rules:
    return suite_rules(read(folder, text), "gpuprof.toml")


def test_figures_as_people_write_them(tmp_path: Path) -> None:
    found = rules(
        tmp_path,
        """
        [gate]
        alpha = "0.5%"
        min_effect = 0.02
        pairs = [3, 7, 12]

        [[budget]]
        match = "train/*"
        time = { regress = "3%", max = "412 ms" }
        mfu = { min = 0.42, level = "warn" }
        bandwidth = { min = "1.5 TB/s" }
        peak_memory = { regress = "1%", max = "20 GiB" }
        launches = { regress = "10%" }
        kernels = { max_new = 0, max_count_regress = "5%" }
        class_change = "error"
        """,
    )

    assert found.settings.alpha == 0.005
    assert found.settings.minimum_effect == 0.02
    assert found.settings.looks == (3, 7, 12)
    budgets = budgets_of("train/llama", found.budgets)
    assert budgets.metrics["time"].regress == pytest.approx(0.03)
    assert budgets.metrics["time"].maximum == pytest.approx(412e6)
    assert (budgets.metrics["mfu"].minimum, budgets.metrics["mfu"].level) == (0.42, "warn")
    assert budgets.metrics["bandwidth"].minimum == pytest.approx(1.5e12)
    assert budgets.metrics["peak_memory"].maximum == pytest.approx(20 * 2**30)
    assert budgets.counters["launches"].regress == pytest.approx(0.1)
    assert budgets.counters["kernels"].regress == pytest.approx(0.05)
    assert (budgets.maximum_new_kernels, budgets.class_change) == (0, "error")
    assert budgets_of("infer", found.budgets).metrics == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[gate]\npair = [5]", "gate: unknown key 'pair'; did you mean 'pairs'?"),
        ("[[budget]]\ntme = { regress = 1 }", "budget 1: unknown key 'tme'; did you mean 'time'?"),
        (
            "[[budget]]\ntime = { regres = '1%' }",
            "budget 1, time: unknown key 'regres'; did you mean 'regress'?",
        ),
        ("[[target]]\nscrip = 'a.py'", "target 1: unknown key 'scrip'; did you mean 'script'?"),
        ("[[budget]]\noccupancy = { min = 1 }", "budget 1: unknown key 'occupancy'"),
        ("[[target]]\nname = 'a'", "a target has one of script, module, code, bench, pytest"),
        ("[[target]]\nscript = 'a.py'\nmodule = 'a'", "this one has script and module"),
        ("[[target]]\nscript = 'a.py'\ntimed = 0", "timed and profiled of at least 1"),
        ("[gate]\non_inconclusive = 'maybe'", "gate, on_inconclusive"),
        ("[[waiver]]\nmatch = 'a'\nreason = 'b'", "missing required field `expires`"),
        ("[[waiver]]\nmatch = 'a'\nreason = 'b'\nexpires = 'soon'", "waiver 1, expires"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(CommandError) as caught:
        read(tmp_path, text)

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[[budget]]\nmatch = 'a'\ntime = { max = '3 GB' }",
            "gpuprof.toml: budget 'a': time.max is '3 GB'; write it like 1.5 ns or 1.5 us",
        ),
        ("[[budget]]\nmfu = { min = '4 ms' }", "budget '*': mfu.min is '4 ms'; write it like"),
        ("[[budget]]\ntime = { regress = 'fast' }", "time.regress is 'fast'"),
        ("[[budget]]\nlaunches = { max = 3 }", "launches has only regress: it is an exact count"),
        ("[gate]\npairs = []", "gpuprof.toml: [gate]: "),
        ("[gate]\npairs = [1]", "gpuprof.toml: [gate]: "),
        ("[gate]\npairs = [5, 3]", "gpuprof.toml: [gate]: "),
        ("[gate]\nalpha = '300%'", "gpuprof.toml: [gate]: "),
        ("[[budget]]\ntime = { regress = -0.1 }", "time.regress is -0.1; it is a number from 0"),
        ("[[budget]]\ntime = { max = 0 }", "time.max is 0; give a limit above it"),
        ("[[budget]]\ntime = { min = '0 ms' }", "time.min is 0; give a limit above it"),
        (
            "[[waiver]]\nmatch = 'a'\nreason = ' '\nexpires = 2030-01-01",
            "gpuprof.toml: waiver 'a' needs a reason",
        ),
        (
            "[[waiver]]\nmatch = 'a'\nmetric = 'tim'\nreason = 'b'\nexpires = 2030-01-01",
            "gpuprof.toml: waiver 'a': unknown metric 'tim'; did you mean 'time'?",
        ),
    ],
)
def test_a_wrong_figure_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(CommandError) as caught:
        rules(tmp_path, text)

    assert said in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("figure", "unit", "value"),
    [
        ("3%", "", 0.03),
        ("0.5 %", "", 0.005),
        (0.03, "", 0.03),
        ("1e3 us", "ns", 1e6),
        ("2 s", "ns", 2e9),
        ("1.5 MiB", "bytes", 1.5 * 2**20),
        ("3 GB/s", "bytes/s", 3e9),
    ],
)
def test_amounts(figure: str | float, unit: str, value: float) -> None:
    assert amount(figure, unit, "here") == pytest.approx(value)


@pytest.mark.parametrize("figure", ["nan", "inf", "-3%", "", "3 %%", "1,5%"])
def test_no_amounts(figure: str) -> None:
    with pytest.raises(CommandError, match="here is"):
        fraction(figure, "here")


@pytest.mark.parametrize("figure", [float("nan"), float("inf"), -0.1])
def test_numbers_that_are_no_amounts(figure: float) -> None:
    with pytest.raises(CommandError, match="here is"):
        fraction(figure, "here")


def test_a_waiver_is_read_with_its_day(tmp_path: Path) -> None:
    found = rules(
        tmp_path,
        "[[waiver]]\nmatch = 'a*'\nmetric = 'time'\nreason = 'new cuDNN'\nexpires = 2030-01-31",
    )
    (waiver,) = found.waivers
    assert (waiver.expires, waiver.metric) == (date(2030, 1, 31), "time")


def test_two_targets_of_one_name_are_refused() -> None:
    targets = (Target(script="a/train.py"), Target(script="b/train.py"))

    with pytest.raises(CommandError, match=r"here: two targets are called 'train'"):
        distinct(targets, "here")


def test_only_chooses_targets_and_names_all_where_none_matches() -> None:
    targets = (Target(script="train.py"), Target(script="infer.py"))

    assert [target.name for target in select(targets, "tr*", "here")] == ["train"]
    with pytest.raises(CommandError, match="matches no target of train, infer"):
        select(targets, "x*", "here")


def test_a_target_is_called_after_what_it_runs() -> None:
    assert Target(script="models/train.py").name == "train"
    assert Target(module="pkg.train").name == "pkg.train"
    assert Target(code="pass").name == "code"
    assert Target(bench=("gemm",)).name == "bench"
    assert Target(pytest=("tests",)).name == "tests"


@pytest.mark.parametrize(
    ("command", "target"),
    [
        ("train.py --small", Target(name="a", script="train.py", arguments=("--small",))),
        ("python3.11 train.py", Target(name="a", script="train.py")),
        ("/usr/bin/python -m pkg.train 3", Target(name="a", module="pkg.train", arguments=("3",))),
        ("-c pass", Target(name="a", code="pass")),
    ],
)
def test_a_command_as_a_target(command: str, target: Target) -> None:
    assert target_from_command(command.split(), "a") == target


def test_an_empty_command_is_refused() -> None:
    with pytest.raises(CommandError, match="the command of a is empty"):
        target_from_command(["python"], "a")


def test_the_command_of_a_script_has_its_counts_before_its_arguments(tmp_path: Path) -> None:
    target = Target(script="train.py", arguments=("--lr", "1"), timed=7, steps="optimizer")

    command = target.command("python", tmp_path)

    assert command[:4] == ("python", "-m", "gpuprof", "run")
    assert command[command.index("--timed") + 1] == "7"
    assert command[command.index("--steps") + 1] == "optimizer"
    assert command[-3:] == ("train.py", "--lr", "1")


def test_benchmarks_of_one_process_are_called_after_their_captures(tmp_path: Path) -> None:
    capture = tmp_path / "gemm.cublas.gpuprof"
    assert Target(bench=("gemm",)).benchmark(capture) == "bench/gemm.cublas"
    assert Target(script="train.py").benchmark(capture) == "train"


def test_some_of_a_target_s_benchmarks_are_asked_for_by_name(tmp_path: Path) -> None:
    tests = Target(name="suite", pytest=("test_speed.py",))
    bench = Target(bench=("gemm", "softmax"))

    asked = tests.command("python", tmp_path, ["suite/test_speed.test_a[1]"])
    versions = bench.command("python", tmp_path, ["bench/gemm/cublas 64x64x64 fp32"])

    assert "--gpuprof-only=test_speed.test_a[1]" in asked
    assert versions[3:5] == ("bench", "gemm/cublas")
    assert bench.command("python", tmp_path)[4:6] == ("gemm", "softmax")
