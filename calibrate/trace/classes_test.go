package trace

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perfplan/perfplan/model/tape"
)

// Every row of the table is the first to match its own example, and says where the
// kernel comes from.
func TestExamplesHaveTheirClass(t *testing.T) {
	require.NotEmpty(t, table().Kernels)
	for _, k := range table().Kernels {
		require.NotEmpty(t, k.Source, k.Pattern)
		require.Equal(t, k.Class, ClassOf(k.Example), k.Example)
		for i := range table().Kernels {
			if first := &table().Kernels[i]; first.expression.MatchString(k.Example) {
				require.Equal(t, k.Pattern, first.Pattern, "%s is hidden by the pattern before it", k.Example)
				break
			}
		}
	}
}

// Every class that an estimate has kernels of is in a family.
func TestEveryClassHasAFamily(t *testing.T) {
	for c := tape.NoKernel + 1; c < tape.NumClasses; c++ {
		if c != tape.Collective {
			require.NotEqual(t, Other, FamilyOf(c.String()), c.String())
		}
	}
	for _, kind := range []string{"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send-recv"} {
		require.Equal(t, Collectives, FamilyOf(classOfCall(kind)), kind)
	}
	require.Equal(t, Other, FamilyOf(ClassOf("my_kernel(float*)")))
}

// Names as they are in traces of PyTorch 2.11, which more than one pattern could take.
func TestClassOf(t *testing.T) {
	for name, want := range map[string]string{
		"void at::native::vectorized_elementwise_kernel<8, at::native::FillFunctor<c10::BFloat16>, std::array<char*, 1ul> >(int, at::native::FillFunctor<c10::BFloat16>, std::array<char*, 1ul>)": "fill",
		"void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::CUDAFunctor_add<float> >(at::TensorIteratorBase&":                                                    "strided-cast",
		"void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::neg_kernel_cuda(at::TensorIteratorBase&)":                                                     "strided2",
		"void at::native::(anonymous namespace)::cunn_SoftMaxBackwardSmem<4, float, float, float, at::native::(anonymous namespace)::SoftMaxBackwardEpilogue>":                                    "softmax-backward",
		"void (anonymous namespace)::softmax_warp_backward<float, float, float, 10, false, false>":                                                                                                "softmax-backward",
		"void at::native::(anonymous namespace)::indexing_backward_kernel_stride_1<float>":                                                                                                        "scatter-add",
		"void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>":                                                                                                        "gemm",
		"_ZN7cutlass13device_kernelIN2at4cuda6detail25enable_3x_kernel_for_sm9xINS_4gemm6kernel13GemmUniversalINS5_17GroupProblemShapeIN4cute5tupleI":                                             "grouped-gemm",
		"triton_per_fused__to_copy_add_div_expand_mul_pow_sum_view_13":                                                                                                                            "fused-reduce",
		"void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, false>":                                                                                                      "gemm",
		"void at_cuda_detail::cub::detail::scan::DeviceScanKernel<at_cuda_detail::cub::detail::scan::policy_hub<int>":                                                                             "sort",
		"ncclAllReduceRingLLKernel_sum_f32(ncclColl)":                                                                                                                                             "all-reduce", // by release of NCCL: to 2.7
		"ncclReduceRingLLKernel_sum_f32(ncclColl)":                                                                                                                                                "reduce",
		"ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)":                                                                                                          "all-reduce", // to 2.18
		"ncclKernel_ReduceScatter_RING_LL_Sum_half(ncclDevComm*, unsigned long, ncclWork*)":                                                                                                       "reduce-scatter",
		"ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)":                                                                                                      "send-recv",
		"ncclSymDevKernel_AllGather_LL(ncclSymDevArgs)":                                                                                                                                           "all-gather", // 2.27
		"ncclSymkDevKernel_ReduceScatter_LL_sum_f32(ncclSymkDevWorkArgs4K)":                                                                                                                       "reduce-scatter",
		"triton_tem_fused_mm_5":                    "gemm",
		"_unpermute_bwd_with_merging_probs_kernel": "gather",
		"ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "reduce-scatter",
	} {
		require.Equal(t, want, ClassOf(name), name)
	}
}
