# The kernels and what puts them behind the backend's interface, for the GPU (CMakeLists.txt) and
# for the tests' emulation of them (tests/emulated_gpu).
set(ANYORDER_CUDA_KERNELS
  attention/attention.cu
  attention/attention_distances.cu
  attention/attention_general_backward.cu
  attention/attention_general_forward.cu
  attention/attention_keys.cu
  attention/attention_parameters.cu
  attention/attention_plan.cu
  attention/attention_prepare.cu
  attention/attention_ring_backward.cu
  attention/attention_ring_forward.cu
  operations/copy.cu
  operations/cross_entropy.cu
  operations/digest.cu
  operations/embedding_backward.cu
  operations/flat.cu
  gemm/gemm_plain.cu
  operations/head_loss.cu
  operations/layernorm.cu
  operations/rowwise.cu)
set(ANYORDER_CUDA_HOST_SOURCES
  cuda_backend.cc
  gemm/gemm.cc
  gemm/gemm_table.cc
  platform/runtime.cc
  platform/staging.cc)
