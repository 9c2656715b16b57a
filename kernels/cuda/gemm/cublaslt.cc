#include "kernels/cuda/gemm/cublaslt.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "kernels/cuda/platform/launch_error.h"
#include "kernels/cuda/platform/runtime.h"

namespace anyorder::kernels::cuda {
namespace {

// The headers' version first; its neighbours have the same functions.
std::vector<std::string> Names() {
  std::vector<std::string> names = {absl::StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR)};
  for (const int major : {13, 12}) {
    if (major != CUBLAS_VER_MAJOR) names.push_back(absl::StrCat("libcublasLt.so.", major));
  }
  return names;
}

std::vector<std::string> Folders() {
  std::vector<std::string> folders = {""};  // where the linker looks
  std::vector<std::string> roots;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* value = std::getenv(variable); value != nullptr && value[0] != '\0')
      roots.emplace_back(value);
  }
  roots.emplace_back("/usr/local/cuda");
  for (const std::string& root : roots) {
    // The second is how Conda lays it out.
    for (const char* folder : {"/lib64/", "/lib/"}) folders.push_back(absl::StrCat(root, folder));
  }
  return folders;
}

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

bool FindAll(void* library, CublasLt* lt) {
  return Find(library, "cublasLtCreate", &lt->Create) &&
         Find(library, "cublasLtDestroy", &lt->Destroy) &&
         Find(library, "cublasLtGetVersion", &lt->GetVersion) &&
         Find(library, "cublasLtMatmul", &lt->Matmul) &&
         Find(library, "cublasLtMatmulAlgoCheck", &lt->MatmulAlgoCheck) &&
         Find(library, "cublasLtMatmulAlgoGetHeuristic", &lt->MatmulAlgoGetHeuristic) &&
         Find(library, "cublasLtMatmulDescCreate", &lt->MatmulDescCreate) &&
         Find(library, "cublasLtMatmulDescDestroy", &lt->MatmulDescDestroy) &&
         Find(library, "cublasLtMatmulDescSetAttribute", &lt->MatmulDescSetAttribute) &&
         Find(library, "cublasLtMatrixLayoutCreate", &lt->MatrixLayoutCreate) &&
         Find(library, "cublasLtMatrixLayoutDestroy", &lt->MatrixLayoutDestroy) &&
         Find(library, "cublasLtMatrixLayoutSetAttribute", &lt->MatrixLayoutSetAttribute) &&
         Find(library, "cublasLtMatmulPreferenceCreate", &lt->MatmulPreferenceCreate) &&
         Find(library, "cublasLtMatmulPreferenceDestroy", &lt->MatmulPreferenceDestroy) &&
         Find(library, "cublasLtMatmulPreferenceSetAttribute", &lt->MatmulPreferenceSetAttribute);
}

absl::StatusOr<CublasLt> Load() {
  std::string first_error;
  for (const std::string& folder : Folders()) {
    for (const std::string& name : Names()) {
      void* library = ::dlopen(absl::StrCat(folder, name).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) {
        if (first_error.empty()) first_error = ::dlerror();
        continue;
      }
      CublasLt lt;
      if (FindAll(library, &lt)) return lt;
      first_error = absl::StrCat(folder, name, " lacks a function: ", ::dlerror());
      ::dlclose(library);
    }
  }
  return NotFound("no cuBLASLt, which comes with the CUDA toolkit (", first_error,
                  "); install it, or let LD_LIBRARY_PATH or CUDA_HOME say where it is");
}

}  // namespace

absl::StatusOr<const CublasLt*> LoadCublasLt() {
  static const auto* const loaded = new absl::StatusOr<CublasLt>(Load());
  if (!loaded->ok()) return loaded->status();
  return &loaded->value();
}

void CheckCublas(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_ALLOC_FAILED) {
    EndWith(ResourceExhausted(what, ": cuBLASLt finds no memory; ", kLessDeviceMemory));
  }
  if (status == CUBLAS_STATUS_SUCCESS) return;
  // Often the first to meet what an earlier kernel did.
  EndAtDeviceError(DeviceError::kOurMistake, what,
                   absl::StrCat("cuBLASLt status ", static_cast<int>(status)));
}

}  // namespace anyorder::kernels::cuda
