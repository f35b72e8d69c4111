"""The names of kernels in parts."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from gpuprof.collectors.opening import open_traces
from gpuprof.roofline.dtypes import parse
from gpuprof.roofline.kernel_names.decode import decode
from gpuprof.roofline.work.attribution import attribute

DATA = Path(__file__).parents[1] / "data"
RECORDED = sorted(
    (*(DATA / "kineto").glob("h100_*"), *(DATA / "nsys").glob("*.sqlite.gz"))
)  # fmt: skip
# NVIDIA, CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", 9.0: bytes
# of shared memory that a block can have.
MOST_SHARED = 227 * 1024
BYTES_OF = {"fp16": 2, "bf16": 2, "fp8": 1, "fp32": 4, "tf32": 4}


@cache
def kernels_of(path: Path) -> pl.DataFrame:
    capture = attribute(open_traces([path]))
    columns = ["op_id", "name", "input_dims", "input_strides", "input_types"]
    ops = capture.ops.select(columns).rename({"name": "op"})
    return capture.kernels.join(ops, on="op_id", how="left")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (
            "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
            {
                "library": "cuBLAS", "function": "gemm", "architecture": "sm90",
                "precision": "bf16", "accumulator": "fp32", "output": "bf16",
                "tile": (256, 128, 64), "stages": 4, "cluster": (1, 2), "layout": "NN",
                "persistent": True,
            },
        ),
        (
            "nvjet_sm90_qqtst_128x128_128x6_1x2_h_bz_coopA_algo2_TNT",
            {
                "library": "cuBLAS", "function": "gemm", "architecture": "sm90",
                "precision": "fp8", "accumulator": "fp32", "output": "bf16",
                "tile": (128, 128, 128), "stages": 6, "cluster": (1, 2), "layout": "TN",
                "persistent": True,
            },
        ),
        (
            "nvjet_sm100_tst_64x16_64x16_2x4_2cta_h_bz_splitK_TNT",
            {
                "library": "cuBLAS", "function": "gemm", "architecture": "sm100",
                "precision": "bf16", "accumulator": "fp32", "output": "bf16",
                "tile": (64, 16, 64), "stages": 16, "cluster": (2, 4), "layout": "TN",
                "algorithm": "split-K", "persistent": True,
            },
        ),
        (
            "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x256x32_warpgroupsize2x1x1_"
            "execute_segment_k_off_kernel__5x_cublas",
            {
                "library": "cuBLAS", "function": "gemm", "architecture": "sm90",
                "precision": "tf32", "accumulator": "fp32", "output": "fp32",
                "tile": (128, 256, 32), "layout": "NN",
            },
        ),
        (
            "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_tn",
            {
                "library": "cuBLAS", "function": "gemm", "architecture": "ampere",
                "precision": "fp16", "accumulator": "fp32", "tile": (128, 64), "stages": 3,
                "layout": "TN",
            },
        ),
        (
            "volta_sgemm_32x32_sliced1x4_nt",
            {
                "library": "cuBLAS", "function": "gemm", "architecture": "volta",
                "precision": "fp32", "tile": (32, 32), "layout": "NT", "algorithm": "sliced",
            },
        ),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_"
            "align8>(cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8::Params)",
            {
                "library": "CUTLASS", "function": "gemm", "architecture": "sm80",
                "precision": "bf16", "accumulator": "fp32", "tile": (64, 64, 64), "stages": 6,
                "layout": "TN", "alignment": 8,
            },
        ),
        (
            # Without a type: TF32 (product_arithmetic.toml).
            "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x64_16x6_nn_align4>(...)",
            {
                "library": "CUTLASS", "function": "gemm", "architecture": "sm80",
                "precision": "tf32", "accumulator": "fp32", "tile": (128, 64, 16), "stages": 6,
                "layout": "NN", "alignment": 4,
            },
        ),
        (
            "cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_bf16_bf16_128x128x64_2x1x1_0_"
            "tnt_align8_warpspecialized_pingpong",
            {
                "library": "CUTLASS", "function": "gemm", "architecture": "sm90",
                "precision": "bf16", "accumulator": "fp32", "tile": (128, 128, 64),
                "cluster": (2, 1), "layout": "TN", "alignment": 8,
            },
        ),
        (
            "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128_1x4x1_"
            "cga1x1x1_kernel0_0",
            {
                "library": "cuDNN", "function": "attention", "architecture": "sm90",
                "direction": "backward", "algorithm": "flash", "tile": (64, 64, 128),
                "cluster": (1, 1),
            },
        ),
        (
            "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, "
            "128, 4, false, false, cutlass::bfloat16_t, ...>",
            {
                "library": "FlashAttention", "function": "attention", "direction": "forward",
                "algorithm": "flash", "tile": (128, 128), "head_size": 64, "precision": "bf16",
            },
        ),
        (
            "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<"
            "cutlass::bfloat16_t, cutlass::arch::Sm80, true, 64, 128, 128, true, true>::Params)",
            {
                "library": "CUTLASS memory-efficient attention", "function": "attention",
                "direction": "forward", "algorithm": "memory-efficient", "precision": "bf16",
                "tile": (64, 128), "architecture": "sm80",
            },
        ),
        (
            "void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x128_"
            "32x4_nhwc_align4>(...)",
            {
                "library": "CUTLASS", "function": "convolution", "direction": "forward",
                "algorithm": "implicit GEMM", "precision": "tf32", "tile": (128, 128, 32),
                "stages": 4, "layout": "NHWC", "alignment": 4,
            },
        ),
        (
            "sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_"
            "tilesize128x128x32_warpgroupsize1x1x1_g1_execute_split_k_kernel__5x_cudnn",
            {
                "library": "cuDNN", "function": "convolution", "direction": "weight gradient",
                "algorithm": "implicit GEMM, split-K", "precision": "tf32",
                "accumulator": "fp32", "architecture": "sm90", "tile": (128, 128, 32),
                "layout": "NHWCKRSC_NHWC",
            },
        ),
        (
            "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(...)",
            {
                "library": "cuDNN", "function": "convolution", "algorithm": "Winograd",
                "precision": "fp32",
            },
        ),
        (
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1_"
            "GSUAMBSK_GLS0_ISA942_IU1_K1",
            {
                "library": "hipBLASLt or rocBLAS (Tensile)", "function": "gemm",
                "architecture": "gfx942", "precision": "bf16", "tile": (256, 192, 64),
                "layout": "TN", "algorithm": "stream-K",
            },
        ),
        (
            "igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt64x64x64_wt32x32x8_ws1x1_wr1x1_ta1x8x1x8_gkgs",
            {
                "library": "MIOpen", "function": "convolution", "direction": "weight gradient",
                "precision": "bf16", "tile": (64, 64, 64), "layout": "NHWC",
                "algorithm": "implicit GEMM",
            },
        ),
        (
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            {
                "library": "NCCL", "function": "communication", "operation": "AllReduce",
                "precision": "bf16", "algorithm": "ring", "protocol": "LL",
            },
        ),
        (
            "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
            {
                "library": "NCCL", "function": "communication", "operation": "AllReduce",
                "precision": "fp32", "algorithm": "ring", "protocol": "LL",
            },
        ),
        (
            "ncclDevKernel_ReduceScatter_Sum_f32_TREE_LL128(ncclDevKernelArgsStorage<4096ul>)",
            {
                "library": "NCCL", "function": "communication", "operation": "ReduceScatter",
                "precision": "fp32", "algorithm": "tree", "protocol": "LL128",
            },
        ),
        (
            "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, ...)",
            {"library": "", "function": "communication", "algorithm": "one-shot"},
        ),
        (
            "ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16(ncclSymkDevWorkArgs4K)",
            {
                "library": "NCCL symmetric memory", "function": "communication",
                "operation": "AllReduce", "precision": "bf16", "algorithm": "reduced in the switch",
            },
        ),
        (
            "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f32(ncclSymkDevWorkArgs4K)",
            {
                "library": "NCCL symmetric memory", "function": "communication",
                "operation": "AllReduce", "precision": "fp32", "algorithm": "one-shot",
                "protocol": "LL",
            },
        ),
        (
            "ncclSymkDevKernel_AllReduce_RSxTmaLD_AGxTmaST_sum_f16(ncclSymkDevWorkArgs4K)",
            {
                "library": "NCCL symmetric memory", "function": "communication",
                "operation": "AllReduce", "precision": "fp16", "algorithm": "two-shot",
            },
        ),
        (
            "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(float*)",
            {"library": "", "function": "communication", "algorithm": "reduced in the switch"},
        ),
        (
            "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<float, 16, 2>()",
            {"library": "", "function": "communication", "algorithm": "two-shot"},
        ),
        (
            "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8, true>()",
            {"library": "", "function": "communication", "algorithm": "one-shot"},
        ),
        (
            "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_ones"
            "hot_lamport<1>()",
            {"library": "", "function": "communication", "algorithm": "one-shot"},
        ),
        (
            "void aiter::allreduce_fusion_kernel_2stage<__hip_bfloat16, 8>(aiter::RankData*)",
            {"library": "", "function": "communication", "algorithm": "two-shot"},
        ),
        (
            "void at::native::vectorized_elementwise_kernel<8, at::native::(anonymous namespace)::"
            "silu_kernel(at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda()#6}"
            "::operator()() const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int, ...)",
            {
                "library": "ATen", "function": "elementwise", "operation": "silu",
                "precision": "bf16", "vector_width": 8,
            },
        ),
        (
            "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<...>>",
            {"library": "ATen", "function": "indexing"},
        ),
        (
            "void cutlass::device_kernel<at::cuda::detail::enable_3x_kernel_for_sm9x<cutlass::gemm"
            "::kernel::GemmUniversal<cute::tuple<int, int, int, int>, cutlass::gemm::collective::"
            "CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecializedFP8<4, cute::tuple<"
            "cute::C<2>, cute::C<1>, cute::C<1> >, cutlass::gemm::"
            "KernelTmaWarpSpecializedPingpongFP8FastAccum>, cute::tuple<cute::C<64>, cute::C<128>, "
            "cute::C<128> >, cutlass::float_e4m3_t, cute::tuple<long, cute::C<1>, long>, ...>",
            {
                "library": "CUTLASS", "function": "gemm", "architecture": "sm90",
                "precision": "fp8", "tile": (64, 128, 128), "cluster": (2, 1), "stages": 4,
                "algorithm": "ping-pong",
            },
        ),
        (
            "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::"
            "CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> >, "
            "cute::tuple<cute::C<128>, cute::C<176>, cute::C<128> >, 128, cutlass::half_t, ...>",
            {
                "library": "FlashAttention 3", "function": "attention", "direction": "forward",
                "architecture": "sm90", "algorithm": "flash", "tile": (128, 176, 128),
            },
        ),
        (
            "bmm_Bfloat16_E2m1E2m1_Fp32_t128x64x256u2_s6_et64x64_sm100f",
            {
                "library": "TensorRT-LLM", "function": "gemm", "precision": "fp4",
                "output": "bf16", "tile": (128, 64, 256), "stages": 6,
            },
        ),
        (
            "triton_per_fused_native_layer_norm_2",
            {
                "library": "inductor (Triton)", "function": "norm",
                "operation": "native_layer_norm", "algorithm": "reduction in registers",
            },
        ),
    ],
)  # fmt: skip
def test_parts_of_names(name: str, parts: dict[str, Any]) -> None:
    decoded = decode(name)
    assert decoded is not None
    empty = type(decoded)(library="", function="")
    told = {
        field: value
        for field, value in msgspec.structs.asdict(decoded).items()
        if value != getattr(empty, field) or field in parts
    }
    assert told == parts


@pytest.mark.parametrize("name", ["add_k", "", "kernel", "copy_blocked[v1]", "Memcpy DtoD"])
def test_what_a_name_does_not_tell_is_absent(name: str) -> None:
    assert decode(name) is None


@pytest.mark.parametrize("tile", ["0x128", f"{'9' * 5000}x128", "\u0661x128", "x"])
def test_what_is_no_size_is_absent(tile: str) -> None:
    decoded = decode(f"nvjet_sm90_tst_{tile}_64x4_1x2_h_bz_coopA_NNT")
    assert decoded is not None
    assert decoded.tile == ()
    assert decoded.precision == "bf16"


def test_nearly_all_time_of_the_recordings_is_decoded() -> None:
    known_ns = all_ns = products_ns = told_ns = 0
    for path in RECORDED:
        kernels = kernels_of(path).filter(pl.col("kind") == "kernel")
        for name, start, end in kernels.select("name", "start_ns", "end_ns").iter_rows():
            decoded = decode(name)
            all_ns += end - start
            known_ns += (end - start) * (decoded is not None)
            if decoded is not None and decoded.function in ("gemm", "convolution"):
                products_ns += end - start
                told_ns += (end - start) * (bool(decoded.tile) and bool(decoded.precision))
    assert known_ns / all_ns > 0.99
    assert told_ns / products_ns > 0.99


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_stages_of_tiles_fill_the_shared_memory(path: Path) -> None:
    """A launch holds the stages of both operands' tiles in shared memory, and the result's."""
    seen = 0
    launches = kernels_of(path).select("name", "shared_memory").unique().drop_nulls()
    for name, shared in launches.iter_rows():
        decoded = decode(name)
        if decoded is None or not decoded.persistent or decoded.stages is None:
            continue
        rows, columns, depth = decoded.tile
        stages = (rows + columns) * depth * decoded.stages * BYTES_OF[decoded.precision]
        assert 0.75 * shared < stages < shared <= MOST_SHARED, name
        seen += 1
    assert seen or "cudagraph_nodes" in path.name


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_layout_and_precision_agree_with_the_operands(path: Path) -> None:
    """Rows of torch are columns of cuBLAS: it multiplies the right operand with the left one."""
    products = kernels_of(path).filter(pl.col("op") == "aten::mm")
    for row in products.unique(["name", "input_strides", "input_types"]).iter_rows(named=True):
        decoded = decode(row["name"])
        if decoded is None or not decoded.layout or row["input_strides"] is None:
            continue
        # A third one is where the result goes.
        strides = json.loads(row["input_strides"])[:2]
        left, right = ("N" if each[1] == 1 else "T" for each in strides)
        assert decoded.layout == right + left, row
        dtype = parse(json.loads(row["input_types"])[0])
        assert dtype is not None
        assert decoded.precision == dtype.precision


def test_every_row_has_a_source() -> None:
    text = (Path(__file__).parents[2] / "roofline/kernel_names/kernel_names.toml").read_text()
    rows = text.split("[[kernel]]")[1:]
    assert len(rows) > 60
    for row in rows:
        assert re.search(r'^source = ".{10,}', row, re.MULTILINE), row
