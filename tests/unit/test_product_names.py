"""Names of operators and kernels that do products, and of those that do not."""

import pytest

from gpuprof.roofline.cost_models.attention_signatures import attention_signatures
from gpuprof.roofline.kernel_names.product_names import names_product


@pytest.mark.parametrize(
    "name",
    [
        "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
        "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(Params)",
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128>",
        "Cijk_Alik_Bljk_BBS_BH_MT128x128x64_MI16x16x1_SN_K1",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7",
        "void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(AttentionKernel::Params)",
        "void marlin::Marlin<__nv_bfloat16, 256>",
        "fused_moe_kernel",
        "matmul_kernel",
        "triton_tem_fused_convolution_4",
        "volta_scudnn_128x64_relu_interior_nn_v1",
        "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false>(Params)",
        "aten::linear",
        "aten::_cudnn_rnn",
        "aten::_slow_conv2d_forward",
    ],
)
def test_a_product(name: str) -> None:
    assert names_product(name)


@pytest.mark.parametrize("name", [n for row in attention_signatures() for n in row.names])
def test_an_attention_whose_shapes_are_not_recorded_is_still_a_product(name: str) -> None:
    assert names_product(name)


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float>",
        "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float>",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL128(args)",
        "void cudnn::fusion::convert_dq_to_16bits<true>(void const*)",
        "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>",
        "void vllm::rotary_embedding_kernel<c10::BFloat16, true>",
        "triton_red_fused__to_copy_mm_native_layer_norm_3",
        "triton_poi_fused__scaled_dot_product_flash_attention_5",
        "aten::upsample_bilinear2d",
        # FBGEMM's sparse operators multiply nothing, and these only surround products.
        "fbgemm::permute_2D_sparse_data",
        "void fbgemm_gpu::permute_2D_data_kernel<false, int, int>(int)",
        "void split_embedding_codegen_forward_unweighted_kernel<float, fbgemm_gpu::Stack>(int)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, __nv_bfloat16>(Params)",
        "void fft2d_r2c_32x32<float, false, 1u, false>(float2*)",
        "cask_cudnn::computeOffsetsKernel(Params)",
        "aten::upsample_linear1d",
        "aten::cumsum",
        "Memcpy HtoD (Pageable -> Device)",
    ],
)
def test_no_product(name: str) -> None:
    assert not names_product(name)
