#include "kernels/backend.h"
#include "kernels/cuda/emulation/stream.h"
#include "kernels/cuda/gemm.h"

namespace anyorder::kernels::cuda {
namespace {

class EmulatedGemm final : public GemmEngine {
 public:
  void Run(const GemmArgs& args, StreamView stream) override {
    emulation::Enqueue(stream, [this, args] { loops_->Gemm(args, {}); });
  }

 private:
  const std::unique_ptr<Backend> loops_ = MakeReferenceBackend();
};

}  // namespace

absl::StatusOr<std::unique_ptr<GemmEngine>> MakeGemmEngine(Runtime&, const GemmOptions&) {
  return std::make_unique<EmulatedGemm>();
}

}  // namespace anyorder::kernels::cuda
