// What partial prediction saves (XLNet, Yang et al. 2019, section 2.3): processor time and memory
// of a training step when one token in K is a target, K = 1, 2, 3, 6, 7, beside what the numbers of
// rows and the counted arithmetic predict.
//
//   partial_bench [--rounds N] [--length S] [--memory M] [--batch B] [--layers L] [--dim D]
//   [--vocab V]
//
// S must be a multiple of 84, so that every K divides it and both halves are even. One thread,
// whose processor time other jobs disturb less than wall time. All K run in turn in every round;
// "of_k1" is the ratio inside a round, median, least and most. One JSON line for each K.
// "predicted": (1 + 1/K) / 2 for the trunk, 1/K for the softmax with its cross-entropy. "counted":
// multiplications and additions that the definitions need; it knows that keys and values are made
// of content rows alone and that the last layer computes no content rows.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/network/transformer.h"
#include "core/objective/objective.h"
#include "tests/bench/flat_tensor.h"
#include "tests/bench/options.h"
#include "tests/bench/rounds.h"
#include "tests/core/network/model_testing.h"
#include "tests/testing/forwarding_backend.h"

namespace anyorder::bench {
namespace {

constexpr int64_t kKs[] = {1, 2, 3, 6, 7};

// Tells the softmax with its cross-entropy, and the optimizer, from the rest; counts arithmetic.
class PartsBackend final : public testing::ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void Reset() { head_seconds = optimizer_seconds = trunk_flops = head_flops = 0; }

  void Gemm(const kernels::GemmArgs& args, StreamView stream) override {
    const int64_t inner = args.transpose_a ? args.a.dim(0) : args.a.dim(1);
    const int64_t results = args.batch.count * args.c.num_elements();
    trunk_flops += 2.0 * static_cast<double>(results) * static_cast<double>(inner);
    ForwardingBackend::Gemm(args, stream);
  }
  void AttentionForward(const kernels::AttentionForwardArgs& args, StreamView stream) override {
    trunk_flops += 3 * PairFlops(args.in.shape);
    ForwardingBackend::AttentionForward(args, stream);
  }
  void AttentionBackward(const kernels::AttentionBackwardArgs& args, StreamView stream) override {
    trunk_flops += 6 * PairFlops(args.in.shape);
    ForwardingBackend::AttentionBackward(args, stream);
  }
  void LinearCrossEntropy(const kernels::LinearCrossEntropyArgs& args, StreamView stream) override {
    head_flops +=
        6.0 * static_cast<double>(args.x.num_elements()) * static_cast<double>(args.weight.dim(0));
    const double begin = ProcessorSeconds();
    ForwardingBackend::LinearCrossEntropy(args, stream);
    head_seconds += ProcessorSeconds() - begin;
  }
  void AdamW(const kernels::AdamWArgs& args, StreamView stream) override {
    const double begin = ProcessorSeconds();
    ForwardingBackend::AdamW(args, stream);
    optimizer_seconds += ProcessorSeconds() - begin;
  }

  double head_seconds = 0;
  double optimizer_seconds = 0;
  double trunk_flops = 0;
  double head_flops = 0;

 private:
  static double PairFlops(const kernels::AttentionShape& shape) {
    return 2.0 * static_cast<double>(shape.num_rows() * shape.num_keys * shape.model_dim());
  }
};

struct Options {
  int64_t rounds = 7;  // after one that warms up
  int64_t length = 252;
  int64_t memory = 0;
  int64_t batch = 4;
  int64_t layers = 4;
  int64_t dim = 256;
  int64_t vocab = 8000;
};

// One K: its network and everything that a step of it needs.
class Contender {
 public:
  Contender(const Options& options, int64_t k) : k_(k) {
    model_.num_layers = options.layers;
    model_.model_dim = options.dim;
    model_.head_dim = 64;
    model_.num_heads = options.dim / 64;
    model_.ffn_dim = 4 * options.dim;
    model_.mem_len = options.memory;
    sampling_.seq_len = options.length;
    sampling_.reuse_len = sampling_.perm_size = options.length / 2;
    sampling_.num_predict = options.length / k;
    sampling_.functional_targets = true;
    objective_ = testing::MakeObjectiveOrDie("permutation_lm", model_, sampling_);
    absl::StatusOr<std::unique_ptr<kernels::Backend>> cpu =
        kernels::MakeCpuBackend({.num_threads = 1});
    ANYORDER_CHECK_OK(cpu.status());
    backend_ = std::make_unique<PartsBackend>(*std::move(cpu));
    absl::StatusOr<std::unique_ptr<Transformer>> network =
        Transformer::Create(model_, options.vocab, objective_->Shape(options.batch), *backend_);
    ANYORDER_CHECK_OK(network.status());
    network_ = *std::move(network);
    const int64_t size = network_->layout().num_elements();
    for (int i = 0; i < 4; ++i)
      flat_.emplace_back(*backend_, DType::kFloat32, size);
    memory_ = MemoryOrDie(model_, objective_->Shape(options.batch), *backend_);
    InitializeParameters(network_->layout(), model_, 1, 0, size, flat_[0].view.data<float>());
    std::vector<int64_t> lanes;
    for (int64_t lane = 0; lane < options.batch; ++lane)
      lanes.push_back(lane);
    batch_ = std::make_unique<Batch>(testing::RandomBatch(
        *objective_, sampling_, options.vocab, lanes, std::vector<bool>(lanes.size(), false), 1));
  }

  // A forward and backward pass and the update, in processor seconds.
  void Run(int64_t step, bool record) {
    backend_->Reset();
    const double begin = ProcessorSeconds();
    StepArgs args;
    args.batch = batch_.get();
    args.weights = flat_[0].view;
    args.memory = memory_.View(0, batch_->shape.batch_size);
    args.seed = 1;
    args.gradients = flat_[1].view;
    network_->Run(args, {});
    memory_.Advance();
    kernels::AdamWArgs update;
    update.grad = flat_[1].view;
    update.master = flat_[0].view;
    update.m = flat_[2].view;
    update.v = flat_[3].view;
    update.learning_rate = 1e-4;
    update.step = step;
    backend_->AdamW(update, {});
    const double seconds = ProcessorSeconds() - begin;
    if (!record) return;
    whole.push_back(seconds);
    head.push_back(backend_->head_seconds);
    trunk.push_back(seconds - backend_->head_seconds - backend_->optimizer_seconds);
  }

  int64_t k() const { return k_; }
  double trunk_flops() const { return backend_->trunk_flops; }
  double head_flops() const { return backend_->head_flops; }
  double bytes() const { return static_cast<double>(network_->activation_bytes()); }

  std::vector<double> whole, trunk, head;  // seconds of each round

 private:
  int64_t k_;
  ModelConfig model_;
  SamplingConfig sampling_;
  std::unique_ptr<Objective> objective_;
  std::unique_ptr<PartsBackend> backend_;
  std::unique_ptr<Transformer> network_;
  std::vector<FlatTensor> flat_;  // weights, gradients, both moments
  MemoryRing memory_;
  std::unique_ptr<Batch> batch_;
};

absl::Status RunBench(int argc, char** argv) {
  Options options;
  ANYORDER_RETURN_IF_ERROR(ParseOptions(argc, argv,
                                        {{"--rounds", &options.rounds, 1},
                                         {"--length", &options.length},
                                         {"--memory", &options.memory},
                                         {"--batch", &options.batch, 1},
                                         {"--layers", &options.layers},
                                         {"--dim", &options.dim},
                                         {"--vocab", &options.vocab}}));
  if (options.length < 84 || options.length % 84 != 0)
    return absl::InvalidArgumentError("--length must be a multiple of 84");
  std::vector<std::unique_ptr<Contender>> contenders;
  for (const int64_t k : kKs)
    contenders.push_back(std::make_unique<Contender>(options, k));
  for (int64_t round = 0; round <= options.rounds; ++round) {
    for (const std::unique_ptr<Contender>& contender : contenders)
      contender->Run(round, /*record=*/round > 0);
  }
  const Contender& one = *contenders.front();
  for (const std::unique_ptr<Contender>& contender : contenders) {
    const Contender& c = *contender;
    const double share = 1.0 / static_cast<double>(c.k());
    std::printf(
        "%s\n",
        absl::StrFormat(
            "{\"k\": %d, \"rounds\": %d, \"length\": %d, \"memory\": %d, \"batch\": %d, "
            "\"layers\": %d, \"dim\": %d, \"vocab\": %d, \"step_ms\": %.1f, "
            "\"trunk_ms\": %.1f, \"head_ms\": %.1f, \"step_of_k1\": %s, "
            "\"trunk_of_k1\": %s, \"trunk_predicted\": %.3f, \"trunk_counted\": %.3f, "
            "\"head_of_k1\": %s, \"head_predicted\": %.3f, \"head_counted\": %.3f, "
            "\"activation_mib\": %.1f, \"activations_of_k1\": %.3f}",
            c.k(), options.rounds, options.length, options.memory, options.batch, options.layers,
            options.dim, options.vocab, 1e3 * Median(c.whole), 1e3 * Median(c.trunk),
            1e3 * Median(c.head), RatioText(c.whole, one.whole), RatioText(c.trunk, one.trunk),
            (1 + share) / 2, c.trunk_flops() / one.trunk_flops(), RatioText(c.head, one.head),
            share, c.head_flops() / one.head_flops(), c.bytes() / (1 << 20),
            c.bytes() / one.bytes())
            .c_str());
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace anyorder::bench

int main(int argc, char** argv) {
  return anyorder::ReportAndExitStatus("partial_bench", anyorder::bench::RunBench(argc, argv));
}
