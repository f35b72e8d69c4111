"""Which kernels are communication, by their names."""

import polars as pl
import pytest

from gpuprof.collectors.kernel_kinds import kind_rows
from gpuprof.collectors.named_kernels import with_kinds

# As torch's profiler, Nsight Systems and users' reports print them, by the collective that the name
# tells, as torch calls it.
COMMUNICATION: dict[str | None, list[str]] = {
    "allreduce": [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16(ncclSymkDevWorkArgs4K)",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(float*)",
        "void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<float, 16>(float*)",
        "void (anonymous namespace)::one_shot_all_reduce_kernel<float, 16, 8>(float**)",
        "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>()",
        "void c10d::intra_node_comm::oneShotAllReduceKernel<8u, true>(float*)",
        "void tensorrt_llm::kernels::twoShotAllReduceKernel<__half, 8, true, false>()",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "void sglang::cross_device_reduce_2stage<__half, 8>(sglang::RankData*)",
        "_ZN5vllm26cross_device_reduce_1stageI13__nv_bfloat16Li8EEEvPNS_8RankDataE",
        "void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half>, __half>()",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>()",
        "void flashinfer::trtllm_mnnvl_allreduce::twoshotAllreduceKernel<(unsigned char)2>()",
        "void aiter::allreduce_fusion_kernel_1stage<__hip_bfloat16, 8>(aiter::RankData*)",
    ],
    "allgather": [
        "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)",
        "void (anonymous namespace)::multimem_all_gather_kernel<16>(char*, char*)",
    ],
    "reduce_scatter": [
        "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ],
    "broadcast": [
        "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ],
    "reduce": [
        "ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ],
    None: [
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
        "rcclGenericKernel",
        "void (anonymous namespace)::multimem_one_shot_reduce_kernel<float, 16>(float*)",
        "void (anonymous namespace)::two_shot_all_reduce_kernel<float, 16, 8, true, false>()",
        "c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)",
        "void c10d::nvshmem_extension::exchangeSplitAndOffset_2d<false>(long*, long*)",
        "c10d::nvshmem_extension::allToAllV(void*, void*, long*, unsigned long, int, int)",
        "void alltoall_on_stream_kernel<char>(int, char*, char const*, unsigned long)",
        "void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)",
        "_ZN5aiter33reduce_scatter_cross_device_storeIDF16bLi8EEEvPNS_8RankDataE",
        "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel(int const*)",
        "void userbuffers_fp16_sum_inplace_gpu_rw_ag<8>(int, int, int)",
        "kuserbuffers_pullrecv(int, int, int, int, int*, int*, int4*, int4*, int)",
        "void mori::moe::EpDispatchIntraNodeKernel<__hip_bfloat16, false>(mori::moe::Args)",
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*)",
        "void deep_ep::internode_ll::combine<true, 7168, 8, 4>(void*, void*, int*)",
    ],
}
COMPUTING = [
    # Inductor names a pointwise kernel after the operators that it waits for.
    "triton_poi_fused_add_all_reduce_4",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(int)",
    "void fused_gemm_kernel<float>(float*, ncclDevComm)",
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*, int*, int*)",
    "void at::native::vectorized_elementwise_kernel<4, (anonymous namespace)::barrier_kernel>(int)",
    "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT",
    "void router::moe_dispatch_kernel<4>(int)",
    "barrier_kernel(int*)",
    "pack_on_stream_kernel(float*)",
]


def kinds_of(*names: str) -> pl.DataFrame:
    frame = pl.DataFrame(
        {"name": names, "kind": ["kernel"] * len(names)}, schema_overrides={"name": pl.String}
    ).with_columns(collective=pl.lit(None, pl.String))
    return with_kinds(frame)


@pytest.mark.parametrize(
    ("name", "collective"),
    [(name, collective) for collective, names in COMMUNICATION.items() for name in names],
)
def test_communication_is_told_by_name(name: str, collective: str | None) -> None:
    assert kinds_of(name).select("kind", "collective").rows() == [("collective", collective)]


@pytest.mark.parametrize("name", COMPUTING)
def test_other_kernels_compute(name: str) -> None:
    assert kinds_of(name).select("kind", "collective").rows() == [("kernel", None)]


def test_each_row_of_the_table_is_the_first_for_some_name() -> None:
    """A row that another hides, or that matches nothing, is a mistake."""
    names = [name for several in COMMUNICATION.values() for name in several] + [
        "__amd_rocclr_fillBufferAligned",
        "__amd_rocclr_copyBuffer",
        "void aiter::allgather_lastdim<__half, 8>(aiter::RankData*)",
    ]
    first = set()
    for name in names:
        matching = [
            index
            for index, row in enumerate(kind_rows())
            if pl.Series([name]).str.contains(row.pattern)[0]
        ]
        first.add(matching[0])
    assert first == set(range(len(kind_rows())))


def test_metadata_counts_before_the_name() -> None:
    frame = pl.DataFrame(
        {
            "name": ["ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "my_exchange", "Memcpy DtoD"],
            "kind": ["kernel", "kernel", "memcpy"],
            "collective": ["_allgather_base", "all_to_all", None],
        }
    )
    assert with_kinds(frame).select("kind", "collective").rows() == [
        ("collective", "_allgather_base"),
        ("collective", "all_to_all"),
        ("memcpy", None),
    ]
