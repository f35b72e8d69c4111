"""CUDA C++ compiled without a GPU. The compiler is an optional extra."""

import ctypes
import locale
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gpuprof.collectors.errors import MissingDependencyError  # noqa: E402
from gpuprof.reference_kernels import nvrtc  # noqa: E402

SOURCE = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include <cuda/std/cstdint>

using namespace nvcuda;

extern "C" __global__ void multiply(const __half* left, const __half* right, float* out) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    wmma::load_matrix_sync(a, left, 16);
    wmma::load_matrix_sync(b, right, 16);
    wmma::mma_sync(sum, a, b, sum);
    wmma::store_matrix_sync(out, sum, 16, wmma::mem_row_major);
}
"""


def compile_or_skip(source: str, architecture: str) -> nvrtc.CompiledProgram:
    try:
        return nvrtc.compile_source(source, architecture=architecture, name="test.cu")
    except MissingDependencyError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_a_source_with_cudas_headers_compiles_to_machine_code(architecture: str) -> None:
    program = compile_or_skip(SOURCE, architecture)
    assert program.architecture == architecture
    assert program.code.startswith(b"\x7fELF")
    assert b"multiply" in program.code


def test_a_source_that_does_not_compile_is_refused_with_the_compilers_words() -> None:
    compile_or_skip(SOURCE, "sm_80")
    with pytest.raises(nvrtc.CompilationError, match=r"(?s)test\.cu for sm_80.*undefined_name"):
        compile_or_skip('extern "C" __global__ void k() { undefined_name(); }', "sm_80")


def test_compiling_leaves_the_encoding_of_files_alone() -> None:
    before = locale.nl_langinfo(locale.CODESET)
    compile_or_skip(SOURCE, "sm_80")
    assert locale.nl_langinfo(locale.CODESET) == before


def test_without_the_compiler_the_pip_line_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    # None makes an import fail as if the package were absent.
    monkeypatch.setitem(sys.modules, "cuda", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'gpuprof-roofline\[cuda\]'"):
        nvrtc.compile_source(SOURCE, architecture="sm_90a")


def test_arguments_say_their_width() -> None:
    tensor = torch.zeros(4)
    assert nvrtc.as_kernel_argument(tensor) == tensor.data_ptr()
    assert isinstance(nvrtc.as_kernel_argument(0.5), np.float32)
    wide = ctypes.c_int64(3)
    assert nvrtc.as_kernel_argument(wide) is wide
    assert type(nvrtc.as_kernel_argument(np.float64(0.5))) is np.float64
    for without_width in (7, True):
        with pytest.raises(TypeError, match=r"np\.int32"):
            nvrtc.as_kernel_argument(without_width)
