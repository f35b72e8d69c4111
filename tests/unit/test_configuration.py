"""`gpuprof.toml`: which one counts, and what it may hold."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuprof.collectors.errors import CommandError
from gpuprof.collectors.manifest import Device
from gpuprof.profiler.configuration.file import (
    Configuration,
    apply_configuration,
    find_configuration,
    read_configuration,
)
from gpuprof.roofline.machine.devices import DeviceSpec, find_spec, register_devices

ROW = """
[[device]]
name = "Prototype X1"
patterns = ["Prototype X1"]
memory_gib = [96]
multiprocessors = 160
dram_gb_per_s = 5000
source = "our own data sheet"

[[device.peaks]]
unit = "tensor"
clock_mhz = 2000
tflops = { bf16 = 1310.7 }
"""


@pytest.fixture(autouse=True)
def _no_devices_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    yield
    register_devices((), origin="")


def write(folder: Path, text: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "gpuprof.toml"
    file.write_text(text)
    return file


def test_the_nearest_file_counts_and_none_above_the_repository(tmp_path: Path) -> None:
    work = tmp_path / "repository" / "package" / "inner"
    work.mkdir(parents=True)
    above = write(tmp_path)
    assert find_configuration(work) == above
    (tmp_path / "repository" / ".git").mkdir()
    assert find_configuration(work) is None
    root = write(tmp_path / "repository")
    assert find_configuration(work) == root
    nearest = write(tmp_path / "repository" / "package")
    assert find_configuration(work) == nearest


def test_the_users_own_file_counts_where_the_project_has_none(tmp_path: Path) -> None:
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    own = write(tmp_path / "home" / "gpuprof")
    assert find_configuration(tmp_path / "repository") == own
    projects = write(tmp_path / "repository")
    assert find_configuration(tmp_path / "repository") == projects


def test_without_a_folder_to_look_in_there_is_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert find_configuration() is None


@pytest.mark.parametrize("home", ["/proc/self/mem", "n" * 300, "loop"])
def test_a_home_that_may_not_be_looked_into_is_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / ".git").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / home))
    assert find_configuration(tmp_path) is None


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert read_configuration(write(tmp_path)) == Configuration()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[target.step]\nscript = 'train.py'",
            "target: expected a list of tables; write [[target]] with a name in it",
        ),
        ("[[devise]]\nname = 'X'", "unknown key 'devise'; did you mean 'device'?"),
        (
            ROW + "[[device.peaks]]\nunit = 'vector'\ntflop = {}",
            "device 1, peaks 2: unknown key 'tflop'; did you mean 'tflops'?",
        ),
        (ROW.replace("dram_gb_per_s", "qqqq"), "device 1: unknown key 'qqqq'; known are name, "),
        (ROW.replace("[96]", "'96 GB'"), "device 1, memory_gib: Expected `array`, got `str`"),
        (ROW.replace("source =", "# source ="), "device 1: Object missing required field `source`"),
        ("device = [", "at end of document"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(CommandError) as raised:
        read_configuration(file)
    assert raised.value.exit_code == 2
    message = str(raised.value)
    assert message.startswith(f"{file}: ")
    assert told in message
    assert "\n" not in message


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "gpuprof.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(CommandError, match=r"gpuprof\.toml: "):
        read_configuration(file)


def named(name: str, **facts: object) -> DeviceSpec | None:
    return find_spec(Device(index=0, kind="cuda", name=name, **facts)).spec  # type: ignore[arg-type]


def test_a_users_device_is_found_and_its_source_is_the_users_file(tmp_path: Path) -> None:
    assert named("NVIDIA Prototype X1") is None
    file = write(tmp_path, ROW)
    apply_configuration(tmp_path)
    spec = named("NVIDIA Prototype X1", multiprocessors=160)
    assert spec is not None
    assert spec.source == f"our own data sheet ({file})"
    assert named("NVIDIA Prototype X2") is None


def test_a_users_row_wins_over_the_built_in_one_where_it_fits(tmp_path: Path) -> None:
    write(tmp_path, ROW.replace("Prototype X1", "H100 80GB HBM3"))
    apply_configuration(tmp_path)
    built_in = named("NVIDIA H100 80GB HBM3", multiprocessors=132)
    assert built_in is not None
    assert built_in.name == "NVIDIA H100 SXM5 80GB"
    own = named("NVIDIA H100 80GB HBM3", multiprocessors=160)
    assert own is not None
    assert own.dram_gb_per_s == 5000


def test_a_users_row_may_be_a_slice_that_its_pattern_names(tmp_path: Path) -> None:
    pattern = "A100-SXM4-80GB MIG 1g.10gb"
    text = ROW.replace("Prototype X1", pattern).replace("[96]", "[10]").replace("160", "14")
    write(tmp_path, text)
    apply_configuration(tmp_path)
    one = named(f"NVIDIA {pattern}", mig=True, multiprocessors=14)
    assert one is not None
    assert named("NVIDIA A100-SXM4-80GB MIG 2g.20gb", mig=True) is None
    whole = named("NVIDIA A100-SXM4-80GB", multiprocessors=108)
    assert whole is not None
    assert whole.name == "NVIDIA A100 SXM4 80GB"


def test_a_users_row_that_does_not_fit_says_so(tmp_path: Path) -> None:
    write(tmp_path, ROW)
    apply_configuration(tmp_path)
    lookup = find_spec(Device(index=0, kind="cuda", name="Prototype X1", multiprocessors=80))
    assert lookup.spec is None
    assert "has not the size of Prototype X1" in lookup.reason


def test_the_example_in_the_documentation_is_read(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "configuration.md"
    example = page.read_text().split("```toml\n")[1].split("```")[0]
    (row,) = read_configuration(write(tmp_path, example)).device
    assert row.multiprocessors == 14
