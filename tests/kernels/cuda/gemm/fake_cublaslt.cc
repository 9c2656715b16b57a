#include "tests/kernels/cuda/gemm/fake_cublaslt.h"

#include <cstdint>
#include <cstring>

#include "core/base/dtype.h"
#include "tests/emulated_gpu/block.h"

namespace anyorder::testing {
namespace {

struct Description {
  int32_t transpose_a = CUBLAS_OP_N;
  int32_t transpose_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int32_t vector_type = -1;
  int64_t vector_step = 0;
  void* vector = nullptr;

  bool has_sum() const {
    return epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_BGRADB;
  }
};
struct Layout {
  cudaDataType type;
  int64_t rows;
  int64_t columns;
  int64_t stride;
  int32_t batch = 1;
  int64_t step = 0;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
};

template <typename T, typename Handle>
T& Of(Handle handle) {
  return *reinterpret_cast<T*>(handle);
}
template <typename T, typename Handle>
cublasStatus_t Make(Handle* handle, const T& object) {
  *handle = reinterpret_cast<Handle>(new T(object));
  ++TheFakeCublasLt().num_objects;
  return CUBLAS_STATUS_SUCCESS;
}
template <typename T, typename Handle>
cublasStatus_t Destroy(Handle handle) {
  delete &Of<T>(handle);
  --TheFakeCublasLt().num_objects;
  return CUBLAS_STATUS_SUCCESS;
}
template <typename T>
cublasStatus_t Take(const void* from, size_t bytes, T* to) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t SetDescription(cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t attribute,
                              const void* value, size_t bytes) {
  auto& description = Of<Description>(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return Take(value, bytes, &description.transpose_a);
    case CUBLASLT_MATMUL_DESC_TRANSB: return Take(value, bytes, &description.transpose_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return Take(value, bytes, &description.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return Take(value, bytes, &description.vector_type);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return Take(value, bytes, &description.vector);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return Take(value, bytes, &description.vector_step);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t SetLayout(cublasLtMatrixLayout_t handle, cublasLtMatrixLayoutAttribute_t attribute,
                         const void* value, size_t bytes) {
  auto& layout = Of<Layout>(handle);
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return Take(value, bytes, &layout.batch);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return Take(value, bytes, &layout.step);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t SetPreference(cublasLtMatmulPreference_t handle,
                             cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                             size_t bytes) {
  auto& preference = Of<Preference>(handle);
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    return Take(value, bytes, &preference.workspace);
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
    return Take(value, bytes, &preference.reductions);
  return CUBLAS_STATUS_SUCCESS;
}

const std::vector<int>& AlgorithmsFor(const Description& description) {
  return description.has_sum() ? TheFakeCublasLt().sums : TheFakeCublasLt().products;
}

// The rules of the header, and for the operands those of NVIDIA's own bindings: sums of A in place
// and of B transposed.
bool CanRun(const Description& description, const Layout& a, const Layout& b, const Layout& d) {
  const bool turns_a = description.transpose_a == CUBLAS_OP_T;
  const bool turns_b = description.transpose_b == CUBLAS_OP_T;
  if ((turns_a ? a.columns : a.rows) != d.rows || (turns_b ? b.rows : b.columns) != d.columns ||
      (turns_a ? a.rows : a.columns) != (turns_b ? b.columns : b.rows) || a.type != b.type)
    return false;
  if (a.batch != d.batch || b.batch != d.batch) return false;
  // Ours has no use for sums of batches.
  if (description.has_sum() && d.batch > 1) return false;
  if (description.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return true;
  if (description.epilogue == CUBLASLT_EPILOGUE_BGRADA && turns_a) return false;
  if (description.epilogue == CUBLASLT_EPILOGUE_BGRADB && !turns_b) return false;
  const int64_t size = d.type == CUDA_R_16BF ? 2 : 4;
  return (description.has_sum() || description.epilogue == CUBLASLT_EPILOGUE_BIAS) &&
         description.vector_type == d.type && description.vector != nullptr &&
         description.vector_step * size % 16 == 0 &&
         reinterpret_cast<uintptr_t>(description.vector) % 16 == 0;
}

cublasStatus_t GetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description_handle,
                            cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                            cublasLtMatmulPreference_t preference, int most,
                            cublasLtMatmulHeuristicResult_t results[], int* found) {
  *found = 0;
  // In place partial sums would be added in any order.
  if (Of<Preference>(preference).reductions & CUBLASLT_REDUCTION_SCHEME_INPLACE)
    return CUBLAS_STATUS_INVALID_VALUE;
  const auto& description = Of<Description>(description_handle);
  const std::vector<int>& algorithms = AlgorithmsFor(description);
  if (!CanRun(description, Of<Layout>(a), Of<Layout>(b), Of<Layout>(d)) || algorithms.empty())
    return TheFakeCublasLt().refusal;
  for (size_t i = 0; i < algorithms.size() && *found < most; ++i, ++*found) {
    results[i] = {};
    results[i].algo.data[0] = i;
    results[i].algo.data[1] = description.epilogue;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CheckAlgorithm(cublasLtHandle_t, cublasLtMatmulDesc_t description_handle,
                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* algorithm,
                              cublasLtMatmulHeuristicResult_t* result) {
  const auto& description = Of<Description>(description_handle);
  const bool fits = CanRun(description, Of<Layout>(a), Of<Layout>(b), Of<Layout>(d)) &&
                    algorithm->data[0] < AlgorithmsFor(description).size() &&
                    algorithm->data[1] == description.epilogue;
  *result = {};
  return fits ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

double Load(const void* data, cudaDataType type, int64_t i) {
  if (type == CUDA_R_16BF) return static_cast<float>(static_cast<const BFloat16*>(data)[i]);
  return static_cast<const float*>(data)[i];
}
void Store(double value, void* data, cudaDataType type, int64_t i) {
  if (type == CUDA_R_16BF) {
    static_cast<BFloat16*>(data)[i] = BFloat16(static_cast<float>(value));
  } else {
    static_cast<float*>(data)[i] = static_cast<float>(value);
  }
}

struct Operand {
  const void* data;
  Layout layout;
  bool transposes;
  int64_t product;  // of the batch
  // Element (i, j) after transposing.
  double At(int64_t i, int64_t j) const {
    const int64_t at = transposes ? i * layout.stride + j : j * layout.stride + i;
    return Load(data, layout.type, product * layout.step + at);
  }
};

// Product `index` of a batch.
void Multiply(const Description& by, const Operand& a, const Operand& b, float beta, void* d,
              Layout out, int64_t index) {
  const int64_t inner = a.transposes ? a.layout.rows : a.layout.columns;
  for (int64_t column = 0; column < out.columns; ++column) {
    for (int64_t row = 0; row < out.rows; ++row) {
      const int64_t at = index * out.step + column * out.stride + row;
      double sum = beta == 0 ? 0 : beta * Load(d, out.type, at);
      for (int64_t i = 0; i < inner; ++i) sum += a.At(row, i) * b.At(i, column);
      if (by.epilogue == CUBLASLT_EPILOGUE_BIAS)
        sum += Load(by.vector, out.type, index * by.vector_step + row);
      Store(sum, d, out.type, at);
    }
  }
  if (!by.has_sum()) return;
  const bool of_a = by.epilogue == CUBLASLT_EPILOGUE_BGRADA;
  for (int64_t at = 0; at < (of_a ? out.rows : out.columns); ++at) {
    double sum = 0;
    for (int64_t i = 0; i < inner; ++i) sum += of_a ? a.At(at, i) : b.At(i, at);
    if (TheFakeCublasLt().sums_differ) sum += TheFakeCublasLt().num_runs % 2;
    Store(sum, by.vector, out.type, at);
  }
}

cublasStatus_t Matmul(cublasLtHandle_t, cublasLtMatmulDesc_t description_handle, const void*,
                      const void* a, cublasLtMatrixLayout_t layout_a, const void* b,
                      cublasLtMatrixLayout_t layout_b, const void* beta, const void* c,
                      cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t layout_d,
                      const cublasLtMatmulAlgo_t* algorithm, void*, size_t, cudaStream_t stream) {
  const auto description = Of<Description>(description_handle);
  const Layout out = Of<Layout>(layout_d);
  const std::vector<int>& algorithms = AlgorithmsFor(description);
  if (c != d || !CanRun(description, Of<Layout>(layout_a), Of<Layout>(layout_b), out) ||
      algorithm->data[0] >= algorithms.size() || algorithm->data[1] != description.epilogue)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const int time = algorithms[algorithm->data[0]];
  if (time == kRefusedAtItsRun) return TheFakeCublasLt().refusal;
  ++(description.has_sum() ? TheFakeCublasLt().num_sums : TheFakeCublasLt().num_products);
  const Operand left{a, Of<Layout>(layout_a), description.transpose_a == CUBLAS_OP_T, 0};
  const Operand right{b, Of<Layout>(layout_b), description.transpose_b == CUBLAS_OP_T, 0};
  const float old = *static_cast<const float*>(beta);
  kernels::cuda::emulation::Enqueue({stream}, [=] {
    TheFakeCublasLt().milliseconds += time;
    ++TheFakeCublasLt().num_runs;
    for (int64_t i = 0; i < out.batch; ++i) {
      const auto of = [i](Operand operand) {
        operand.product = i;
        return operand;
      };
      Multiply(description, of(left), of(right), old, d, out, i);
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

FakeCublasLt& TheFakeCublasLt() {
  static FakeCublasLt fake;
  return fake;
}

kernels::cuda::CublasLt FakeCublasLtFunctions() {
  kernels::cuda::CublasLt lt;
  lt.Create = [](cublasLtHandle_t* handle) {
    *handle = reinterpret_cast<cublasLtHandle_t>(&TheFakeCublasLt());
    return CUBLAS_STATUS_SUCCESS;
  };
  lt.Destroy = [](cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; };
  lt.GetVersion = [] { return TheFakeCublasLt().version; };
  lt.Matmul = Matmul;
  lt.MatmulAlgoCheck = CheckAlgorithm;
  lt.MatmulAlgoGetHeuristic = GetHeuristic;
  lt.MatmulDescCreate = [](cublasLtMatmulDesc_t* made, cublasComputeType_t, cudaDataType_t) {
    return Make(made, Description());
  };
  lt.MatmulDescDestroy = [](cublasLtMatmulDesc_t made) { return Destroy<Description>(made); };
  lt.MatmulDescSetAttribute = SetDescription;
  lt.MatrixLayoutCreate = [](cublasLtMatrixLayout_t* made, cudaDataType type, uint64_t rows,
                             uint64_t columns, int64_t stride) {
    return Make(made,
                Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), stride});
  };
  lt.MatrixLayoutSetAttribute = SetLayout;
  lt.MatrixLayoutDestroy = [](cublasLtMatrixLayout_t made) { return Destroy<Layout>(made); };
  lt.MatmulPreferenceCreate = [](cublasLtMatmulPreference_t* made) {
    return Make(made, Preference());
  };
  lt.MatmulPreferenceDestroy = [](cublasLtMatmulPreference_t made) {
    return Destroy<Preference>(made);
  };
  lt.MatmulPreferenceSetAttribute = SetPreference;
  return lt;
}

}  // namespace anyorder::testing
