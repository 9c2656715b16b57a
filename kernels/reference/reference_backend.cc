#include "kernels/arguments.h"
#include "kernels/backend.h"
#include "kernels/host_memory.h"
#include "kernels/reference/operations.h"

namespace anyorder::kernels {

namespace {

class ReferenceBackend : public Backend {
 public:
  std::string name() const override { return "reference"; }
  bool Supports(DType dtype) const override {
    return dtype == DType::kFloat64 || dtype == DType::kFloat32 || dtype == DType::kBFloat16;
  }

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) override {
    return AllocateHostBuffer(bytes);
  }
  int64_t AttentionBackwardWorkspaceBytes(const AttentionShape&, DType) const override { return 0; }
  int64_t LinearCrossEntropyWorkspaceBytes(int64_t, int64_t, int64_t, DType) const override {
    return 0;
  }

 private:
  void Enqueue(const Operation& operation, StreamView) override {
    CheckArguments(operation, *this);
    std::visit([](const auto* args) { reference::Run(*args); }, operation);
  }
};

}  // namespace

std::unique_ptr<Backend> MakeReferenceBackend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace anyorder::kernels
