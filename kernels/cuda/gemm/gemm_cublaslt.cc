#include "kernels/cuda/gemm/gemm_cublaslt.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/status.h"

namespace anyorder::kernels::cuda {
namespace {

// Partial sums in the workspace are added by one kernel in a fixed order. In place they are added
// in whatever order blocks end.
constexpr uint32_t kFixedOrder = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(GemmAlgorithm));

cudaDataType_t TypeOf(DType dtype) { return dtype == DType::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F; }

// "128 x 768 x 768, bf16 to fp32, of addresses that are multiples of 16, 16 and 4 bytes"
std::string TextOf(const GemmKey& key) {
  return absl::StrCat(key.batch > 1 ? absl::StrCat(key.batch, " times ") : "", key.m, " x ", key.n,
                      " x ", key.k, key.in == DType::kBFloat16 ? ", bf16 to " : ", fp32 to ",
                      key.out == DType::kBFloat16 ? "bf16" : "fp32",
                      ", of addresses that are multiples of ", key.align_a, ", ", key.align_b,
                      " and ", key.align_c, " bytes");
}

bool AreOfOneKind(const GemmTable& x, const GemmTable& y) {
  return x.chip == y.chip && x.library == y.library;
}

std::string Difference(const std::string& path, const GemmTable& found, const GemmTable& here) {
  return absl::StrCat("'", path, "' pins products for ", found.chip, " and cuBLASLt ",
                      found.library, ", here are ", here.chip, " and ", here.library);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CublasLtGemm>> CublasLtGemm::Create(Runtime& runtime,
                                                                   const CublasLt& lt,
                                                                   const GemmOptions& options) {
  std::unique_ptr<CublasLtGemm> gemm(new CublasLtGemm(runtime, lt, options));
  const DeviceProperties& device = runtime.properties();
  if (const cublasStatus_t status = lt.Create(&gemm->handle_); status != CUBLAS_STATUS_SUCCESS) {
    return Unavailable("cuBLASLt does not start on ", device.name, ": status ",
                       static_cast<int>(status));
  }
  gemm->table_.chip = absl::StrCat(device.name, ", sm_", device.chip);
  gemm->table_.library = static_cast<int64_t>(lt.GetVersion());
  if (!options.table.empty()) RETURN_IF_ERROR(gemm->ReadTable());
  return gemm;
}

absl::Status CublasLtGemm::ReadTable() {
  table_path_ = options_.table;
  absl::StatusOr<GemmTable> found = ReadGemmTable(table_path_);
  if (absl::IsNotFound(found.status())) return absl::OkStatus();
  if (absl::IsFailedPrecondition(found.status())) return ReadTableBeside(found.status().message());
  RETURN_IF_ERROR(found.status());
  if (!AreOfOneKind(*found, table_))
    return ReadTableBeside(Difference(table_path_, *found, table_));
  table_.algorithms = std::move(found->algorithms);
  return absl::OkStatus();
}

absl::Status CublasLtGemm::ReadTableBeside(absl::string_view why) {
  table_path_ = PathBeside(options_.table, table_);
  absl::StatusOr<GemmTable> found = ReadGemmTable(table_path_);
  const bool is_there = !absl::IsNotFound(found.status());
  if (is_there) {
    RETURN_IF_ERROR(found.status());
    if (!AreOfOneKind(*found, table_)) {
      return FailedPrecondition(Difference(table_path_, *found, table_), "; move it away");
    }
    table_.algorithms = std::move(found->algorithms);
  }
  LogWarning(absl::StrCat(
      why, ": it is left as it is and '", table_path_,
      is_there ? "' used"
               : "' used, which is not there yet: algorithms are selected again, results are not "
                 "bitwise identical from here on; `anyorder tune --table` measures them there, or "
                 "name another table (kernels.gemm_algorithm_cache)"));
  return absl::OkStatus();
}

CublasLtGemm::~CublasLtGemm() {
  for (const auto& [key, plan] : plans_) Destroy(plan);
  if (handle_ != nullptr) lt_.Destroy(handle_);
}

void CublasLtGemm::Destroy(const Plan& plan) const {
  for (const cublasLtMatrixLayout_t layout : {plan.a, plan.b, plan.d})
    lt_.MatrixLayoutDestroy(layout);
  lt_.MatmulDescDestroy(plan.description);
}

CublasLtGemm::Plan CublasLtGemm::Describe(const ColumnMajorProduct& p, bool fuses_sum) const {
  Plan plan;
  plan.fuses_sum = fuses_sum;
  CheckCublas(lt_.MatmulDescCreate(&plan.description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
              "description of a product");
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    CheckCublas(lt_.MatmulDescSetAttribute(plan.description, attribute, &value, sizeof value),
                "attribute of a product");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a() ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b() ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.key.has_bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, TypeOf(p.key.out));
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    if (p.key.batch > 1) set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, p.step_bias);
  }
  if (fuses_sum) {
    // BGRADA sums op(A) over the inner dimension, a number a row of D, and the library's A is the
    // contract's b: D = c^T, so that a row is a column n of c. BGRADB sums op(B), a number a column
    // of D, and B is the contract's a. They exist for an A that is not transposed and for a B that
    // is, that is, for operands stored with K rows.
    set(CUBLASLT_MATMUL_DESC_EPILOGUE,
        p.key.sum == GemmSum::kB ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
    // Algorithms are chosen by its alignment, which is always the same.
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.sum);
  }
  const auto layout = [&](cublasLtMatrixLayout_t* made, DType dtype, int64_t rows, int64_t columns,
                          int64_t step) {
    CheckCublas(lt_.MatrixLayoutCreate(made, TypeOf(dtype), static_cast<uint64_t>(rows),
                                       static_cast<uint64_t>(columns), /*ld=*/rows),
                "layout of a matrix");
    if (p.key.batch <= 1) return;
    const auto set_batch = [&](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
      CheckCublas(lt_.MatrixLayoutSetAttribute(*made, attribute, &value, sizeof value),
                  "batch of a matrix");
    };
    set_batch(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(p.key.batch));
    set_batch(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
  };
  layout(&plan.a, p.key.in, p.stride_a(), p.transpose_a() ? p.rows() : p.inner(), p.step_a());
  layout(&plan.b, p.key.in, p.stride_b(), p.transpose_b() ? p.inner() : p.columns(), p.step_b());
  layout(&plan.d, p.key.out, p.stride_d(), p.columns(), p.step_d());
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
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kCublasLtBytes));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kFixedOrder);
  // The library's a is the contract's b.
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(key.align_b));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(key.align_a));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(key.align_c));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(key.align_c));
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int found = 0;
  const cublasStatus_t status =
      lt_.MatmulAlgoGetHeuristic(handle_, plan.description, plan.a, plan.b, plan.d, plan.d,
                                 preference, most, results.data(), &found);
  lt_.MatmulPreferenceDestroy(preference);
  // Having none is an answer; what else may have gone wrong would only make the run slow without a
  // word. That a sum cannot be described is an answer, too: without it the same description is
  // asked for again.
  const bool has_none = status == CUBLAS_STATUS_NOT_SUPPORTED ||
                        (plan.fuses_sum && status == CUBLAS_STATUS_INVALID_VALUE);
  if (!has_none) CheckCublas(status, absl::StrCat("algorithms for a product of ", TextOf(key)));
  results.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(found) : 0);
  std::erase_if(results, [](const auto& result) {
    return result.state != CUBLAS_STATUS_SUCCESS ||
           result.workspaceSize > static_cast<size_t>(kCublasLtBytes);
  });
  return results;
}

std::optional<CublasLtGemm::Plan> CublasLtGemm::TakePinned(
    const ColumnMajorProduct& product) const {
  const auto pinned = table_.algorithms.find(product.key);
  if (pinned == table_.algorithms.end()) return std::nullopt;
  Plan plan = Describe(product, pinned->second.fuses_sum);
  std::memcpy(&plan.algorithm, pinned->second.algorithm.data(), sizeof plan.algorithm);
  cublasLtMatmulHeuristicResult_t result = {};
  const cublasStatus_t status = lt_.MatmulAlgoCheck(handle_, plan.description, plan.a, plan.b,
                                                    plan.d, plan.d, &plan.algorithm, &result);
  plan.exists = status == CUBLAS_STATUS_SUCCESS && result.state == CUBLAS_STATUS_SUCCESS &&
                result.workspaceSize <= static_cast<size_t>(kCublasLtBytes);
  if (plan.exists) return plan;
  Destroy(plan);
  LogWarning(absl::StrCat("'", table_path_, "' pins an algorithm that cuBLASLt refuses for ",
                          TextOf(product.key),
                          ": another is chosen, results are not bitwise identical from here on"));
  return std::nullopt;
}

CublasLtGemm::Plan CublasLtGemm::Choose(const ColumnMajorProduct& product) {
  Plan plan = Describe(product, /*fuses_sum=*/false);
  const auto candidates = Candidates(plan, product.key, 1);
  plan.exists = !candidates.empty();
  if (plan.exists) {
    plan.algorithm = candidates[0].algo;
    Pin(product.key, plan);
  } else {
    LogWarning(absl::StrCat("cuBLASLt has no algorithm for a product of ", TextOf(product.key),
                            ": a plain kernel, much slower, computes it"));
  }
  return plan;
}

PinnedGemm CublasLtGemm::PinnedOf(const Plan& plan) {
  PinnedGemm pinned;
  pinned.fuses_sum = plan.fuses_sum;
  std::memcpy(pinned.algorithm.data(), &plan.algorithm, sizeof plan.algorithm);
  return pinned;
}

void CublasLtGemm::Pin(const GemmKey& key, const Plan& plan) {
  table_.algorithms[key] = PinnedOf(plan);
  if (table_path_.empty() || !options_.writes_table || !can_write_) return;
  if (const absl::Status status = WriteGemmTable(table_, table_path_); !status.ok()) {
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
  std::optional<Plan> plan = TakePinned(product);
  if (!plan) plan = Choose(product);
  return plans_.emplace(product.key, *plan).first->second;
}

void CublasLtGemm::ChooseApart(const ColumnMajorProduct& product, cublasStatus_t status,
                               Plan* plan) {
  LogWarning(absl::StrCat(
      "cuBLASLt refuses, with status ", static_cast<int>(status),
      ", to run the algorithm it named for the sum along with a product of ", TextOf(product.key),
      ": a separate kernel computes the sum, results are not bitwise identical from here on"));
  Destroy(*plan);
  *plan = Choose(product);
}

cublasStatus_t CublasLtGemm::Start(const Plan& plan, const ColumnMajorProduct& product,
                                   StreamView stream) {
  if (const void* const vector = plan.fuses_sum ? product.sum : product.bias; vector != nullptr) {
    CheckCublas(lt_.MatmulDescSetAttribute(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                           &vector, sizeof vector),
                "bias of a product");
  }
  if (product.key.has_bias && product.key.batch > 1) {
    const int64_t step = product.step_bias;
    CheckCublas(lt_.MatmulDescSetAttribute(plan.description, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE,
                                           &step, sizeof step),
                "biases of a batch");
  }
  const float beta = product.key.accumulates ? 1 : 0;
  return lt_.Matmul(handle_, plan.description, &product.scale, product.a, plan.a, product.b, plan.b,
                    &beta, product.d, plan.d, product.d, plan.d, &plan.algorithm,
                    Workspace(stream, kCublasLtBytes), kCublasLtBytes,
                    static_cast<cudaStream_t>(stream.handle));
}

int64_t CublasLtGemm::workspace_bytes() const { return kCublasLtBytes; }

Made CublasLtGemm::Multiply(const ColumnMajorProduct& product, StreamView stream) {
  Plan& plan = PlanOf(product, stream);
  if (!plan.exists) return Made::kNothing;
  cublasStatus_t status = Start(plan, product, stream);
  const bool is_refused =
      status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
  // The table's plan, or that of tuning: none other has the sum. It runs as soon as it is made, and
  // never is in a graph; one that has run keeps its bits.
  if (is_refused && plan.fuses_sum && !plan.has_run && !runtime().IsCapturing(stream)) {
    ChooseApart(product, status, &plan);
    if (!plan.exists) return Made::kNothing;
    status = Start(plan, product, stream);
  }
  CheckCublas(status, absl::StrCat("product of ", TextOf(product.key)));
  plan.has_run = true;
  return plan.fuses_sum ? Made::kProductAndSum : Made::kProduct;
}

}  // namespace anyorder::kernels::cuda
