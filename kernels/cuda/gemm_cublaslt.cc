#include "kernels/cuda/gemm_cublaslt.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/status.h"

namespace anyorder::kernels::cuda {
namespace {

// What NVIDIA advises for sm_90; sm_80 does with less.
constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;
// Partial sums in the workspace are added by one kernel in a fixed order. In place they are added in whatever order blocks end.
constexpr uint32_t kFixedOrder = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
constexpr int kTunedCandidates = 32;

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(GemmAlgorithm));

cudaDataType_t TypeOf(DType dtype) {
  return dtype == DType::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

// "128 x 768 x 768, bf16 to fp32, of addresses that are multiples of 16, 16 and 4 bytes"
std::string TextOf(const GemmKey& key) {
  return absl::StrCat(key.m,
                      " x ",
                      key.n,
                      " x ",
                      key.k,
                      key.in == DType::kBFloat16 ? ", bf16 to " : ", fp32 to ",
                      key.out == DType::kBFloat16 ? "bf16" : "fp32",
                      ", of addresses that are multiples of ",
                      key.align_a,
                      ", ",
                      key.align_b,
                      " and ",
                      key.align_c,
                      " bytes");
}

}  // namespace

absl::StatusOr<std::unique_ptr<CublasLtGemm>> CublasLtGemm::Create(Runtime& runtime,
                                                                   const GemmOptions& options) {
  ANYORDER_ASSIGN_OR_RETURN(const CublasLt* const lt, LoadCublasLt());
  std::unique_ptr<CublasLtGemm> gemm(new CublasLtGemm(runtime, *lt, options));
  ANYORDER_RETURN_IF_ERROR(gemm->Prepare());
  return gemm;
}

absl::StatusOr<std::unique_ptr<GemmEngine>> MakeGemmEngine(Runtime& runtime,
                                                           const GemmOptions& options) {
  return CublasLtGemm::Create(runtime, options);
}

absl::Status CublasLtGemm::Prepare() {
  if (const cublasStatus_t status = lt_.Create(&handle_); status != CUBLAS_STATUS_SUCCESS) {
    return absl::UnavailableError(absl::StrCat("cuBLASLt does not start on ",
                                               runtime().properties().name,
                                               ": status ",
                                               static_cast<int>(status)));
  }
  const DeviceProperties& device = runtime().properties();
  table_.chip = absl::StrCat(device.name, ", sm_", device.chip);
  table_.library = static_cast<int64_t>(lt_.GetVersion());
  if (options_.table.empty()) return absl::OkStatus();
  absl::StatusOr<GemmTable> found = ReadGemmTable(options_.table);
  if (absl::IsNotFound(found.status())) return absl::OkStatus();
  ANYORDER_RETURN_IF_ERROR(found.status());
  if (found->chip != table_.chip || found->library != table_.library) {
    LogWarning(absl::StrCat("'",
                            options_.table,
                            "' pins products for ",
                            found->chip,
                            " and cuBLASLt ",
                            found->library,
                            ", here are ",
                            table_.chip,
                            " and ",
                            table_.library,
                            ": algorithms are chosen anew, bits may differ from here on"));
    return absl::OkStatus();
  }
  table_.algorithms = std::move(found->algorithms);
  return absl::OkStatus();
}

CublasLtGemm::~CublasLtGemm() {
  for (const auto& [key, plan] : plans_) {
    for (const cublasLtMatrixLayout_t layout : {plan.a, plan.b, plan.d})
      lt_.MatrixLayoutDestroy(layout);
    lt_.MatmulDescDestroy(plan.description);
  }
  if (handle_ != nullptr) lt_.Destroy(handle_);
}

CublasLtGemm::Plan CublasLtGemm::Describe(const ColumnMajorProduct& p) const {
  Plan plan;
  CheckCublas(lt_.MatmulDescCreate(&plan.description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
              "description of a product");
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    CheckCublas(lt_.MatmulDescSetAttribute(plan.description, attribute, &value, sizeof value),
                "attribute of a product");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.key.has_bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, TypeOf(p.key.out));
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  }
  const auto layout = [&](cublasLtMatrixLayout_t* made,
                          DType dtype,
                          int64_t rows,
                          int64_t columns,
                          int64_t stride) {
    CheckCublas(lt_.MatrixLayoutCreate(made,
                                       TypeOf(dtype),
                                       static_cast<uint64_t>(rows),
                                       static_cast<uint64_t>(columns),
                                       stride),
                "layout of a matrix");
  };
  layout(&plan.a,
         p.key.in,
         p.transpose_a ? p.inner : p.rows,
         p.transpose_a ? p.rows : p.inner,
         p.stride_a);
  layout(&plan.b,
         p.key.in,
         p.transpose_b ? p.columns : p.inner,
         p.transpose_b ? p.inner : p.columns,
         p.stride_b);
  layout(&plan.d, p.key.out, p.rows, p.columns, p.stride_d);
  return plan;
}

std::vector<cublasLtMatmulHeuristicResult_t> CublasLtGemm::Candidates(const Plan& plan,
                                                                      const GemmKey& key,
                                                                      int most) const {
  cublasLtMatmulPreference_t preference = nullptr;
  CheckCublas(lt_.MatmulPreferenceCreate(&preference), "preference of a product");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    CheckCublas(lt_.MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
                "attribute of a preference");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceBytes));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kFixedOrder);
  // The library's a is the contract's b.
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(key.align_b));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(key.align_a));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(key.align_c));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(key.align_c));
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int found = 0;
  const cublasStatus_t status = lt_.MatmulAlgoGetHeuristic(handle_,
                                                           plan.description,
                                                           plan.a,
                                                           plan.b,
                                                           plan.d,
                                                           plan.d,
                                                           preference,
                                                           most,
                                                           results.data(),
                                                           &found);
  lt_.MatmulPreferenceDestroy(preference);
  // Having none is an answer; what else may have gone wrong would only make the run slow without a word.
  if (status != CUBLAS_STATUS_NOT_SUPPORTED)
    CheckCublas(status, absl::StrCat("algorithms for a product of ", TextOf(key)));
  results.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(found) : 0);
  std::erase_if(results, [](const auto& result) {
    return result.state != CUBLAS_STATUS_SUCCESS ||
           result.workspaceSize > static_cast<size_t>(kWorkspaceBytes);
  });
  return results;
}

bool CublasLtGemm::TakePinned(const GemmKey& key, Plan* plan) const {
  const auto pinned = table_.algorithms.find(key);
  if (pinned == table_.algorithms.end()) return false;
  std::memcpy(&plan->algorithm, pinned->second.data(), sizeof plan->algorithm);
  cublasLtMatmulHeuristicResult_t result = {};
  const cublasStatus_t status = lt_.MatmulAlgoCheck(
      handle_, plan->description, plan->a, plan->b, plan->d, plan->d, &plan->algorithm, &result);
  if (status == CUBLAS_STATUS_SUCCESS && result.state == CUBLAS_STATUS_SUCCESS &&
      result.workspaceSize <= static_cast<size_t>(kWorkspaceBytes))
    return true;
  LogWarning(absl::StrCat("'",
                          options_.table,
                          "' pins an algorithm that cuBLASLt refuses for ",
                          TextOf(key),
                          ": another is chosen, bits may differ from here on"));
  return false;
}

void CublasLtGemm::Pin(const GemmKey& key, const cublasLtMatmulAlgo_t& algorithm) {
  GemmAlgorithm words = {};
  std::memcpy(words.data(), &algorithm, sizeof algorithm);
  table_.algorithms[key] = words;
  if (options_.table.empty() || !options_.writes_table || !can_write_) return;
  if (const absl::Status status = WriteGemmTable(table_, options_.table); !status.ok()) {
    // Training goes on; a resumed run chooses again.
    LogWarning(absl::StrCat(status.message(), "; algorithms of products are not recorded"));
    can_write_ = false;
  }
}

CublasLtGemm::Plan& CublasLtGemm::PlanOf(const ColumnMajorProduct& product, StreamView stream) {
  const auto known = plans_.find(product.key);
  if (known != plans_.end()) return known->second;
  ANYORDER_CHECK(!runtime().IsCapturing(stream))
      << "a product of " << TextOf(product.key) << " comes up for the first time inside of a graph";
  Plan plan = Describe(product);
  plan.exists = TakePinned(product.key, &plan);
  if (!plan.exists) {
    const auto candidates = Candidates(plan, product.key, 1);
    plan.exists = !candidates.empty();
    if (plan.exists) {
      plan.algorithm = candidates[0].algo;
      Pin(product.key, plan.algorithm);
    } else {
      LogWarning(absl::StrCat("cuBLASLt has no algorithm for a product of ",
                              TextOf(product.key),
                              ": a plain kernel, much slower, computes it"));
    }
  }
  return plans_.emplace(product.key, plan).first->second;
}

cublasStatus_t CublasLtGemm::Start(const Plan& plan,
                                   const ColumnMajorProduct& product,
                                   StreamView stream) {
  if (product.bias != nullptr) {
    CheckCublas(lt_.MatmulDescSetAttribute(plan.description,
                                           CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                           &product.bias,
                                           sizeof product.bias),
                "bias of a product");
  }
  const float one = 1;
  const float beta = product.key.accumulates ? 1 : 0;
  return lt_.Matmul(handle_,
                    plan.description,
                    &one,
                    product.a,
                    plan.a,
                    product.b,
                    plan.b,
                    &beta,
                    product.d,
                    plan.d,
                    product.d,
                    plan.d,
                    &plan.algorithm,
                    Workspace(stream, kWorkspaceBytes),
                    kWorkspaceBytes,
                    static_cast<cudaStream_t>(stream.handle));
}

bool CublasLtGemm::Multiply(const ColumnMajorProduct& product, StreamView stream) {
  const Plan& plan = PlanOf(product, stream);
  if (!plan.exists) return false;
  CheckCublas(Start(plan, product, stream), absl::StrCat("product of ", TextOf(product.key)));
  return true;
}

// The mean of several runs; of ten that do not count the clock has risen.
double CublasLtGemm::Microseconds(const Plan& plan, const ColumnMajorProduct& product) {
  constexpr int kWarmUp = 10;
  constexpr int kRuns = 40;
  const StreamView stream = runtime().main_stream();
  const EventView begin = runtime().MakeTimedEvent();
  const EventView end = runtime().MakeTimedEvent();
  bool runs = true;
  for (int i = 0; i < kWarmUp + kRuns && runs; ++i) {
    if (i == kWarmUp) runtime().Record(begin, stream);
    runs = Start(plan, product, stream) == CUBLAS_STATUS_SUCCESS;
  }
  double microseconds = -1;
  if (runs) {
    runtime().Record(end, stream);
    microseconds = 1000 * runtime().MillisecondsBetween(begin, end) / kRuns;
  }
  runtime().Synchronize(stream);
  runtime().DestroyEvent(begin);
  runtime().DestroyEvent(end);
  return microseconds;
}

constexpr int64_t kOperandGap = 512;

int64_t OperandBytes(const GemmKey& key) {
  return (key.m + key.n) * key.k * SizeOf(key.in) + (key.m + 1) * key.n * SizeOf(key.out) +
         4 * kOperandGap;
}

// A product of this shape and alignment whose operands lie one behind the other in `data`.
ColumnMajorProduct ProductIn(char* data, const GemmKey& key) {
  const auto take = [&data](int64_t size, int alignment) {
    char* const begin = data;
    data += (size + kOperandGap) / 256 * 256;
    return begin + alignment % 16;
  };
  GemmArgs args;
  args.transpose_a = key.transpose_a;
  args.transpose_b = key.transpose_b;
  args.a = ConstTensorView(take(key.m * key.k * SizeOf(key.in), key.align_a),
                           key.in,
                           key.transpose_a ? Shape{key.k, key.m} : Shape{key.m, key.k});
  args.b = ConstTensorView(take(key.k * key.n * SizeOf(key.in), key.align_b),
                           key.in,
                           key.transpose_b ? Shape{key.n, key.k} : Shape{key.k, key.n});
  args.c = TensorView(take(key.m * key.n * SizeOf(key.out), key.align_c), key.out, {key.m, key.n});
  if (key.has_bias)
    args.bias = ConstTensorView(take(key.n * SizeOf(key.out), kBiasAlignment), key.out, {key.n});
  args.beta = key.accumulates ? 1.0f : 0.0f;
  ColumnMajorProduct product = ColumnMajorOf(args);
  product.key = key;
  return product;
}

TunedGemm CublasLtGemm::TuneOne(const GemmKey& key, char* data, GemmAlgorithm* words) {
  const ColumnMajorProduct product = ProductIn(data, key);
  Plan plan = PlanOf(product, runtime().main_stream());
  TunedGemm tuned;
  tuned.key = key;
  if (plan.exists) tuned.before_microseconds = Microseconds(plan, product);
  tuned.best_microseconds = tuned.before_microseconds;
  for (const auto& candidate : Candidates(plan, key, kTunedCandidates)) {
    plan.algorithm = candidate.algo;
    const double microseconds = Microseconds(plan, product);
    ++tuned.candidates;
    if (microseconds < 0 || microseconds >= tuned.best_microseconds) continue;
    tuned.best_microseconds = microseconds;
    std::memcpy(words->data(), &candidate.algo, sizeof candidate.algo);
  }
  return tuned;
}

absl::Status CublasLtGemm::Tune(const std::function<void(const TunedGemm&)>& report) {
  GemmTable tuned = table_;
  for (auto& [key, words] : tuned.algorithms) {
    const int64_t bytes = OperandBytes(key);
    ANYORDER_ASSIGN_OR_RETURN(void* const data, runtime().AllocateDevice(bytes));
    // What the numbers are does not matter, but zeros would be faster than any.
    runtime().FillBytes(data, 0x3c, bytes, {});
    report(TuneOne(key, static_cast<char*>(data), &words));
    runtime().FreeDevice(data);
  }
  table_ = std::move(tuned);
  return WriteGemmTable(table_, options_.table);
}

absl::Status TuneGemms(const std::string& path,
                       const std::function<void(const TunedGemm&)>& report) {
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime, OpenDevice(0));
  ANYORDER_ASSIGN_OR_RETURN(const GemmTable table, ReadGemmTable(path));
  // Only Tune writes.
  GemmOptions options;
  options.table = path;
  options.writes_table = false;
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<CublasLtGemm> gemm,
                            CublasLtGemm::Create(*runtime, options));
  if (gemm->num_pinned() != static_cast<int64_t>(table.algorithms.size())) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", path, "' is for ", table.chip, ", not for this machine; tune it there"));
  }
  return gemm->Tune(report);
}

}  // namespace anyorder::kernels::cuda
