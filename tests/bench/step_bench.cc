// One training step (forward, backward, gradient norm, AdamW) on synthetic text, as tokens per
// second, and as a fraction of what the same backend reaches on one large matrix product.
//
//   step_bench [--preset tiny|base|llama] [--dtype fp32|bf16] [--threads N] [--dropout RATE]
//              [--batch N] [--recompute none|elementwise|layer] [--recompute-layers N]
//              [--steps N] [--profile]
//
// Prints one JSON object. --profile adds the share of each part; its clock costs under 1 % of a
// step.

#include <algorithm>
#include <array>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

#include "core/base/status.h"
#include "core/objective/objective.h"
#include "core/optim/schedule.h"
#include "tests/bench/learner.h"
#include "tests/bench/operands.h"
#include "tests/bench/options.h"
#include "tests/core/network/model_testing.h"
#include "tests/testing/forwarding_backend.h"

namespace anyorder::bench {
namespace {

struct Options {
  std::string preset = "tiny";
  std::string dtype = "fp32";
  std::string recompute = "none";
  Retention retention;
  int64_t threads = 1;
  int64_t batch = 0;  // 0: the preset's
  int64_t steps = 5;  // timed ones, after two that warm up
  double dropout = 0.1;
  bool profile = false;
};

enum class Part { kGemm, kAttention, kSoftmax, kOptimizer, kRest };
constexpr std::array<const char*, 5> kPartNames = {"gemm", "attention", "softmax", "optimizer",
                                                   "rest"};

// Passes every call on and adds up where the time goes, and how much arithmetic was asked for.
class TimedBackend final : public testing::ForwardingBackend {
 public:
  // Without `timed` only arithmetic is counted.
  TimedBackend(std::unique_ptr<kernels::Backend> inner, bool timed)
      : ForwardingBackend(std::move(inner)), timed_(timed) {}

  void Reset() {
    seconds_ = {};
    gemm_flops_ = attention_flops_ = 0;
  }
  double seconds(Part part) const { return seconds_[static_cast<size_t>(part)]; }
  // Multiplications and additions that the definitions need; nothing that a kernel computes again
  // counts.
  double gemm_flops() const { return gemm_flops_; }
  double attention_flops() const { return attention_flops_; }

  void PlanAttention(const kernels::AttentionPlan& plan, StreamView stream) override {
    Time(Part::kAttention, [&] { ForwardingBackend::PlanAttention(plan, stream); });
  }

 private:
  // Adds up what an operation asks for; its part.
  Part Count(const kernels::GemmArgs& args) {
    const int64_t inner = args.transpose_a ? args.a.dim(0) : args.a.dim(1);
    const int64_t results = args.batch.count * args.c.num_elements();
    gemm_flops_ += 2.0 * static_cast<double>(results) * static_cast<double>(inner);
    return Part::kGemm;
  }
  Part Count(const kernels::AttentionForwardArgs& args) {
    attention_flops_ += 3 * ProductFlops(args.in.shape);
    return Part::kAttention;
  }
  Part Count(const kernels::AttentionBackwardArgs& args) {
    attention_flops_ += 6 * ProductFlops(args.in.shape);
    return Part::kAttention;
  }
  Part Count(const kernels::LinearCrossEntropyArgs& args) {
    const double products = args.dx.is_null() ? 1 : 3;
    gemm_flops_ += products * 2.0 * static_cast<double>(args.x.num_elements()) *
                   static_cast<double>(args.weight.dim(0));
    return Part::kSoftmax;
  }
  Part Count(const kernels::AdamWArgs&) { return Part::kOptimizer; }
  Part Count(const kernels::SumOfSquaresArgs&) { return Part::kOptimizer; }
  Part Count(const kernels::ComputeGradientClipArgs&) { return Part::kOptimizer; }
  template <typename Args>
  Part Count(const Args&) {
    return Part::kRest;
  }

  void Enqueue(const kernels::Operation& operation, StreamView stream) override {
    const Part part = std::visit([this](const auto* args) { return Count(*args); }, operation);
    Time(part, [&] { ForwardingBackend::Enqueue(operation, stream); });
  }

  // One [rows, keys] by head_dim product in every head. Forward needs three (content and position
  // scores, values), backward six (dV, dP, and two factors for each kind of score).
  static double ProductFlops(const kernels::AttentionShape& shape) {
    return 2.0 * static_cast<double>(shape.num_rows() * shape.num_keys * shape.model_dim());
  }

  template <typename Call>
  void Time(Part part, const Call& call) {
    if (!timed_) return call();
    seconds_[static_cast<size_t>(part)] += SecondsOf(call);
  }

  bool timed_;
  std::array<double, 5> seconds_{};
  double gemm_flops_ = 0;
  double attention_flops_ = 0;
};

struct Preset {
  std::string objective = "permutation_lm";
  ModelConfig model;
  SamplingConfig sampling;
  int64_t vocab_size = 32000;
  int64_t batch = 2;
};

absl::StatusOr<Preset> MakePreset(const Options& options) {
  Preset preset;
  if (options.preset == "tiny") {
    testing::SetKeys("num_layers = 4, model_dim = 256, num_heads = 4, ffn_dim = 1024, mem_len = 96",
                     preset.model);
    testing::SetKeys("seq_len = 128, reuse_len = 64, num_predict = 21, perm_size = 64",
                     preset.sampling);
    preset.vocab_size = 8000;
    preset.batch = 8;
  } else if (options.preset == "llama") {
    // Four layers with groups of two query heads, as peers/llama_cpu.py has them.
    preset.objective = "gpt";
    testing::MakeLlama(preset.model);
    testing::SetKeys(
        "num_layers = 4, model_dim = 512, num_heads = 8, num_kv_heads = 4, head_dim = 64, "
        "ffn_dim = 1408, readout_dropout = false, mem_len = 0",
        preset.model);
    preset.sampling.bidirectional = false;
  } else if (options.preset != "base") {
    return absl::InvalidArgumentError("--preset must be tiny, base or llama");
  }
  if (options.batch > 0) preset.batch = options.batch;
  preset.model.dropout = preset.model.attention_dropout = options.dropout;
  if (options.dtype == "bf16") {
    preset.model.dtype = ComputeType::kBFloat16;
  } else if (options.dtype != "fp32") {
    return absl::InvalidArgumentError("--dtype must be fp32 or bf16");
  }
  return preset;
}

// GFLOP/s of one product that is large enough for any library to show its best.
double GemmRate(kernels::Backend& backend, DType dtype) {
  constexpr int64_t kSize = 1536;
  DeviceMemory memory(backend);
  kernels::GemmArgs args = {.a = memory.Tensor(dtype, {kSize, kSize}),
                            .b = memory.Tensor(dtype, {kSize, kSize}),
                            .c = memory.Tensor(dtype, {kSize, kSize})};
  double best = 0;
  for (int i = 0; i < 4; ++i) {
    const double seconds = SecondsOf([&] { backend.Gemm(args, {}); });
    best = std::max(best, 2.0 * kSize * kSize * kSize / seconds * 1e-9);
  }
  return best;
}

Batch MakeBatch(const Preset& preset, const Objective& objective, int64_t step) {
  std::vector<int64_t> lanes(static_cast<size_t>(preset.batch));
  for (size_t b = 0; b < lanes.size(); ++b) lanes[b] = static_cast<int64_t>(b);
  return testing::RandomBatch(objective, preset.sampling, preset.vocab_size, lanes,
                              std::vector<bool>(lanes.size(), false), step);
}

std::string Shares(const TimedBackend& backend, double seconds) {
  std::string text;
  double known = 0;
  for (size_t part = 0; part < kPartNames.size(); ++part) {
    const double share = backend.seconds(static_cast<Part>(part)) / seconds;
    known += share;
    absl::StrAppendFormat(&text, "\"%s\": %.3f, ", kPartNames[part], share);
  }
  return absl::StrFormat(", \"shares\": {%s\"outside\": %.3f}", text, 1 - known);
}

absl::Status RunBench(int argc, char** argv) {
  Options options;
  RETURN_IF_ERROR(ParseOptions(argc, argv,
                               {{"--preset", &options.preset},
                                {"--dtype", &options.dtype},
                                {"--threads", &options.threads, 1},
                                {"--batch", &options.batch, 1},
                                {"--steps", &options.steps, 1},
                                {"--recompute", &options.recompute},
                                {"--recompute-layers", &options.retention.layers},
                                {"--dropout", &options.dropout},
                                {"--profile", &options.profile}}));
  if (!ParseEnum(options.recompute, options.retention.recompute))
    return InvalidArgument("--recompute must be none, elementwise or layer");
  ASSIGN_OR_RETURN(const Preset preset, MakePreset(options));
  ASSIGN_OR_RETURN(std::unique_ptr<kernels::Backend> device,
                   kernels::MakeCpuBackend({.num_threads = static_cast<int>(options.threads)}));
  ASSIGN_OR_RETURN(const std::unique_ptr<Objective> objective,
                   MakeObjective(preset.objective, preset.model, preset.sampling));
  TimedBackend backend(std::move(device), options.profile);
  const BatchShape shape = objective->Shape(preset.batch);
  const OptimizerConfig optimizer;
  ASSIGN_OR_RETURN(const std::unique_ptr<Learner> learner,
                   Learner::Create(preset.model, preset.vocab_size, shape, 1, optimizer, backend,
                                   options.retention));
  const double gemm_rate = GemmRate(backend, ToDType(preset.model.dtype));

  constexpr int64_t kWarmUp = 2;
  std::vector<double> seconds;
  double total = 0;
  double loss = 0;
  for (int64_t step = 0; step < kWarmUp + options.steps; ++step) {
    const Batch batch = MakeBatch(preset, *objective, step);
    if (step == kWarmUp) backend.Reset();
    const double rate = LearningRate(optimizer, kWarmUp + options.steps, step);
    const double elapsed = SecondsOf([&] { loss = learner->Step(batch, rate); });
    if (step < kWarmUp) continue;
    seconds.push_back(elapsed);
    total += elapsed;
  }
  const double median = Median(seconds);
  const auto tokens = static_cast<double>(preset.batch * preset.sampling.seq_len);
  const double flops =
      (backend.gemm_flops() + backend.attention_flops()) / static_cast<double>(options.steps);
  std::cout << absl::StrFormat(
                   "{\"preset\": \"%s\", \"backend\": \"%s\", \"dtype\": \"%s\", \"threads\": %d, "
                   "\"recompute\": \"%s\", "
                   "\"dropout\": %g, \"batch\": %d, \"seq_len\": %d, \"step_ms\": %.1f, "
                   "\"tokens_per_second\": %.1f, \"step_gflop\": %.1f, \"attention_gflop\": %.1f, "
                   "\"gflop_per_second\": %.1f, \"large_gemm_gflop_per_second\": %.1f, "
                   "\"fraction_of_large_gemm\": %.3f, "
                   "\"peak_rss_mib\": %.0f, \"loss\": %.4f%s}",
                   options.preset, backend.name(), options.dtype, options.threads,
                   options.recompute, options.dropout, preset.batch, preset.sampling.seq_len,
                   median * 1e3, tokens / median, flops * 1e-9,
                   backend.attention_flops() / static_cast<double>(options.steps) * 1e-9,
                   flops / median * 1e-9, gemm_rate, flops / median * 1e-9 / gemm_rate,
                   PeakRssMib(), loss, options.profile ? Shares(backend, total) : "")
            << std::endl;
  return absl::OkStatus();
}

}  // namespace
}  // namespace anyorder::bench

int main(int argc, char** argv) {
  return anyorder::ReportAndExitStatus("step_bench", anyorder::bench::RunBench(argc, argv));
}
