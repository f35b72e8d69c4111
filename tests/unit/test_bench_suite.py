"""The vocabulary of the reference suite: checks that catch wrong results, reasons in words."""

import math
import os
import subprocess
import sys

import pytest
import torch

from gpuprof.reference_kernels.families import (
    UnknownNameError,
    family_names,
    load_family,
    select,
)
from gpuprof.reference_kernels.stream.problem import Stream
from gpuprof.reference_kernels.suite import (
    Requirement,
    UnsupportedError,
    Version,
    poison,
    relative_error,
)
from gpuprof.roofline.bench.libraries import is_library
from gpuprof.roofline.claims.byte_sizes import parse_bytes

CPU = torch.device("cpu")


def version(**changes: object) -> Version:
    facts: dict[str, object] = {
        "family": "stream",
        "name": "torch",
        "summary": "",
        "dtypes": ("fp32",),
        "devices": ("cpu",),
    }
    return Version(**{**facts, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
def test_a_poisoned_float_is_nan(dtype: torch.dtype) -> None:
    output = torch.zeros(3).to(dtype)
    poison((output,))
    assert output.float().isnan().all()


def test_a_poisoned_integer_is_the_least_value() -> None:
    output = torch.zeros(3, dtype=torch.int32)
    poison((output,))
    assert output.tolist() == [-(2**31)] * 3


def test_the_error_is_the_distance_over_the_length_of_the_reference() -> None:
    right = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert relative_error((torch.tensor([3.0, 4.5]),), (right,)) == pytest.approx(0.1)


def test_the_error_is_the_worst_of_several_outputs() -> None:
    right = torch.ones(4, dtype=torch.float64)
    outputs = (torch.ones(4), torch.full((4,), 1.5), torch.full((4,), 1.25))
    assert relative_error(outputs, (right, right, right)) == pytest.approx(0.5)


@pytest.mark.parametrize("position", [0, 1])
def test_nan_in_any_output_is_no_error_to_pass(position: int) -> None:
    right = torch.ones(2, dtype=torch.float64)
    outputs = [torch.ones(2), torch.ones(2)]
    outputs[position][1] = math.nan
    assert math.isnan(relative_error(tuple(outputs), (right, right)))


def test_a_reference_of_zeros_makes_the_error_absolute() -> None:
    zeros = torch.zeros(2, dtype=torch.float64)
    assert relative_error((torch.tensor([0.0, 2.0]),), (zeros,)) == 2.0


def test_outputs_of_another_number_or_shape_are_refused() -> None:
    right = torch.ones(2, dtype=torch.float64)
    with pytest.raises(ValueError, match="1 outputs against 2"):
        relative_error((torch.ones(2),), (right, right))
    with pytest.raises(ValueError, match="shape"):
        relative_error((torch.ones(1, 2),), (right,))


def test_a_version_says_why_it_cannot() -> None:
    assert version().why_not("fp32", CPU) is None
    assert version(devices=("cuda",)).why_not("fp32", CPU) == "stream/torch needs cuda"
    assert version().why_not("bf16", CPU) == "stream/torch has no bf16: fp32"


@pytest.mark.parametrize(
    ("requirement", "module", "remedy"),
    [
        ("triton", "triton", "it comes with a CUDA build of torch"),
        ("triton>=3.4", "triton.tools.tensor_descriptor", "it comes with a CUDA build of torch"),
        ("cuda-core", "cuda.core", "pip install 'gpuprof-roofline[cuda]'"),
    ],
)
def test_a_version_names_the_package_it_lacks(
    monkeypatch: pytest.MonkeyPatch, requirement: Requirement, module: str, remedy: str
) -> None:
    # None makes an import fail as if the package were absent.
    monkeypatch.setitem(sys.modules, module, None)
    reason = version(requires=(requirement,)).why_not("fp32", CPU) or ""
    assert reason.startswith(f"stream/torch needs {requirement}: {remedy}")


def test_a_version_that_an_older_triton_cannot_import_requires_a_newer_one() -> None:
    code = (
        "import sys; from importlib import import_module\n"
        "sys.modules['triton.tools.tensor_descriptor'] = None\n"
        "from gpuprof.reference_kernels.families import select\n"
        "for version in [version for family in select(()) for version in family.versions]:\n"
        "    try:\n"
        "        import_module(version.module)\n"
        "        imported = True\n"
        "    except ImportError:\n"
        "        imported = False\n"
        "    assert imported != ('triton>=3.4' in version.requires), version.label\n"
    )
    # Triton's interpreter, which other tests ask for, needs the module itself.
    environment = {name: v for name, v in os.environ.items() if name != "TRITON_INTERPRET"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_what_cannot_be_is_not_prepared() -> None:
    problem = Stream("copy:4KiB", "fp32", CPU)
    with pytest.raises(UnsupportedError, match="needs cuda"):
        version(devices=("cuda",)).prepare(problem)


def test_a_prepared_version_writes_every_output() -> None:
    problem = Stream("triad:4KiB", "fp32", CPU, seed=3)
    prepared = version().prepare(problem)
    poison(prepared.outputs)
    prepared.call()
    assert relative_error(prepared.outputs, problem.reference()) <= problem.tolerance


def test_the_seed_decides_the_inputs() -> None:
    first, same, other = (Stream("copy:4KiB", "fp32", CPU, seed=seed).a for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_a_triad_costs_two_flops_an_element_and_three_arrays() -> None:
    work = Stream("triad:4KiB", "fp32", CPU).work()
    assert [(part.kind, part.count) for part in work.flops] == [("vector", 2048)]
    assert (work.bytes_read, work.bytes_written) == (8192, 4096)


def test_all_families_load_and_name_their_versions_once() -> None:
    for name in family_names():
        family = load_family(name)
        assert family.problem.family == name
        names = [one.name for one in family.versions]
        assert len(set(names)) == len(names) > 0
        assert {one.family for one in family.versions} == {name}


def test_every_version_has_its_module() -> None:
    from importlib.util import find_spec

    for name in family_names():
        missing = [v.module for v in load_family(name).versions if find_spec(v.module) is None]
        assert missing == []


def test_selecting_keeps_each_family_once_with_the_versions_wanted() -> None:
    (gemm,) = select(["gemm/cublas", "gemm/triton-tiled", "gemm/cublas"])
    assert [one.name for one in gemm.versions] == ["cublas", "triton-tiled"]
    assert [family.name for family in select([])] == list(family_names())


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("gem", "no family 'gem': did you mean gemm?"),
        ("stream/torhc", "no version 'torhc' of stream: did you mean torch?"),
        ("qqq", "there are "),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(wanted: str, message: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        select([wanted])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cublas", True),
        ("torch-flash", True),
        ("nccl-ring", True),
        ("triton-tiled", False),
        ("torch-compile", False),
        ("cuda-naive", False),
    ],
)
def test_versions_that_call_a_library_are_told_by_name(name: str, expected: bool) -> None:
    assert is_library(name) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("64KiB", 65536), ("4.7MB", 4_700_000), ("1GiB", 2**30), ("12", 12), ("256mib", 2**28)],
)
def test_byte_sizes(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "MiB", "1 parsec", "-1KiB", "1e6"])
def test_what_is_no_byte_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no number of bytes"):
        parse_bytes(text)


@pytest.mark.parametrize("size", ["copy", "copy:", "add:1MiB", "1MiB", "copy:1B"])
def test_a_wrong_stream_size_is_refused(size: str) -> None:
    with pytest.raises(ValueError, match=r"size|bytes|element"):
        Stream(size, "fp32", CPU)
