// One training step (forward, backward, gradient norm, AdamW) on synthetic text, as tokens per
// second, and as a fraction of what the same backend reaches on one large matrix product.
//
//   step_bench [--preset tiny|base] [--dtype fp32|bf16] [--threads N] [--dropout RATE] [--batch N]
//   [--steps N]
//              [--backend cpu|reference] [--profile]
//
// Prints one JSON object. --profile adds the share of each part; its clock costs under 1 % of a
// step.

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/network/transformer.h"
#include "core/objective/objective.h"
#include "tests/bench/flat_tensor.h"
#include "tests/bench/options.h"
#include "tests/bench/timed_backend.h"
#include "tests/core/network/model_testing.h"

namespace anyorder::bench {
namespace {

struct Options {
  std::string preset = "tiny";
  std::string dtype = "fp32";
  std::string backend = "cpu";
  int64_t threads = 1;
  int64_t batch = 0;  // 0: the preset's
  int64_t steps = 5;  // timed ones, after two that warm up
  double dropout = 0.1;
  bool profile = false;
};

struct Preset {
  ModelConfig model;
  SamplingConfig sampling;
  int64_t vocab_size = 32000;
  int64_t batch = 2;
};

absl::StatusOr<Preset> MakePreset(const Options& options) {
  Preset preset;
  if (options.preset == "tiny") {
    preset.model.num_layers = 4;
    preset.model.model_dim = 256;
    preset.model.num_heads = 4;
    preset.model.ffn_dim = 1024;
    preset.model.mem_len = 96;
    preset.sampling.seq_len = 128;
    preset.sampling.reuse_len = 64;
    preset.sampling.num_predict = 21;
    preset.sampling.perm_size = 64;
    preset.vocab_size = 8000;
    preset.batch = 8;
  } else if (options.preset != "base") {
    return absl::InvalidArgumentError("--preset must be tiny or base");
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

absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeBackend(const Options& options) {
  if (options.backend == "reference") return kernels::MakeReferenceBackend();
  if (options.backend != "cpu") {
    return absl::InvalidArgumentError("--backend must be cpu or reference");
  }
  return kernels::MakeCpuBackend({.num_threads = static_cast<int>(options.threads)});
}

class StepBench {
 public:
  StepBench(const Preset& preset, const BatchShape& shape, kernels::Backend& backend,
            Transformer& transformer)
      : preset_(preset),
        backend_(backend),
        transformer_(transformer),
        size_(transformer.layout().num_elements()),
        is_fp32_(preset.model.dtype == ComputeType::kFloat32),
        master_(backend, DType::kFloat32, size_),
        weights_(backend, ToDType(preset.model.dtype), is_fp32_ ? 1 : size_),
        gradients_(backend, DType::kFloat32, size_),
        m_(backend, DType::kFloat32, size_),
        v_(backend, DType::kFloat32, size_),
        sums_(backend, DType::kFloat64,
              (size_ + kernels::kNormBlockElements - 1) / kernels::kNormBlockElements),
        memory_(MemoryOrDie(preset.model, shape, backend)),
        ranges_(DecayRanges(transformer.layout())) {
    InitializeParameters(transformer.layout(), preset.model, 1, 0, size_,
                         master_.view.data<float>());
    if (!is_fp32_) backend.Cast(master_.view, weights_.view, {});
  }

  // Mean loss of one step, optimizer included.
  double Run(const Batch& batch) {
    StepArgs args;
    args.batch = &batch;
    args.weights = is_fp32_ ? master_.view : weights_.view;
    args.memory = memory_.View(0, batch.shape.batch_size);
    args.seed = 1;
    args.gradients = gradients_.view;
    const StepResult result = transformer_.Run(args, {});
    memory_.Advance();
    backend_.SumOfSquares(gradients_.view, sums_.view, {});
    double squares = 0;
    for (int64_t i = 0; i < sums_.view.num_elements(); ++i) squares += sums_.view.data<double>()[i];
    Update(1.0 / std::max(1.0, std::sqrt(squares)), batch.step);
    return result.loss_sum / result.divisor;
  }

 private:
  void Update(double grad_scale, int64_t step) {
    for (const DecayRange& range : ranges_) {
      const Shape shape{range.end - range.begin};
      kernels::AdamWArgs args;
      args.grad = gradients_.view.Slice(range.begin, shape);
      args.master = master_.view.Slice(range.begin, shape);
      args.m = m_.view.Slice(range.begin, shape);
      args.v = v_.view.Slice(range.begin, shape);
      if (!is_fp32_) args.weights = weights_.view.Slice(range.begin, shape);
      args.grad_scale = grad_scale;
      args.learning_rate = 1e-4;
      args.weight_decay = range.decays ? 0.01 : 0.0;
      args.step = step;
      backend_.AdamW(args, {});
    }
  }

  Preset preset_;
  kernels::Backend& backend_;
  Transformer& transformer_;
  int64_t size_;
  bool is_fp32_;
  FlatTensor master_, weights_, gradients_, m_, v_, sums_;
  MemoryRing memory_;
  std::vector<DecayRange> ranges_;
};

// GFLOP/s of one product that is large enough for any library to show its best.
double GemmRate(kernels::Backend& backend, DType dtype) {
  constexpr int64_t kSize = 1536;
  const FlatTensor a(backend, dtype, kSize * kSize);
  const FlatTensor b(backend, dtype, kSize * kSize);
  const FlatTensor c(backend, dtype, kSize * kSize);
  kernels::GemmArgs args;
  args.a = a.view.Reshape({kSize, kSize});
  args.b = b.view.Reshape({kSize, kSize});
  args.c = c.view.Reshape({kSize, kSize});
  double best = 0;
  for (int i = 0; i < 4; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    backend.Gemm(args, {});
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    best = std::max(best, 2.0 * kSize * kSize * kSize / elapsed.count() * 1e-9);
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
  ANYORDER_RETURN_IF_ERROR(ParseOptions(argc, argv,
                                        {{"--preset", &options.preset},
                                         {"--dtype", &options.dtype},
                                         {"--backend", &options.backend},
                                         {"--threads", &options.threads, 1},
                                         {"--batch", &options.batch, 1},
                                         {"--steps", &options.steps, 1},
                                         {"--dropout", &options.dropout},
                                         {"--profile", &options.profile}}));
  ANYORDER_ASSIGN_OR_RETURN(const Preset preset, MakePreset(options));
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Backend> device, MakeBackend(options));
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<Objective> objective,
                            MakeObjective("permutation_lm", preset.model, preset.sampling));
  TimedBackend backend(*device, options.profile);
  const BatchShape shape = objective->Shape(preset.batch);
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<Transformer> transformer,
                            Transformer::Create(preset.model, preset.vocab_size, shape, backend));
  StepBench bench(preset, shape, backend, *transformer);
  const double gemm_rate = GemmRate(*device, ToDType(preset.model.dtype));

  constexpr int64_t kWarmUp = 2;
  std::vector<double> seconds;
  double total = 0;
  double loss = 0;
  for (int64_t step = 0; step < kWarmUp + options.steps; ++step) {
    const Batch batch = MakeBatch(preset, *objective, step);
    if (step == kWarmUp) backend.Reset();
    const auto begin = std::chrono::steady_clock::now();
    loss = bench.Run(batch);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    if (step < kWarmUp) continue;
    seconds.push_back(elapsed.count());
    total += elapsed.count();
  }
  std::nth_element(seconds.begin(), seconds.begin() + options.steps / 2, seconds.end());
  const double median = seconds[options.steps / 2];
  const auto tokens = static_cast<double>(preset.batch * preset.sampling.seq_len);
  const double flops =
      (backend.gemm_flops() + backend.attention_flops()) / static_cast<double>(options.steps);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::cout << absl::StrFormat(
                   "{\"preset\": \"%s\", \"backend\": \"%s\", \"dtype\": \"%s\", \"threads\": %d, "
                   "\"dropout\": %g, \"batch\": %d, \"seq_len\": %d, \"step_ms\": %.1f, "
                   "\"tokens_per_second\": %.1f, \"step_gflop\": %.1f, \"attention_gflop\": %.1f, "
                   "\"gflop_per_second\": %.1f, \"large_gemm_gflop_per_second\": %.1f, "
                   "\"fraction_of_large_gemm\": %.3f, \"activation_mib\": %.0f, "
                   "\"peak_rss_mib\": %.0f, \"loss\": %.4f%s}",
                   options.preset, device->name(), options.dtype, options.threads, options.dropout,
                   preset.batch, preset.sampling.seq_len, median * 1e3, tokens / median,
                   flops * 1e-9,
                   backend.attention_flops() / static_cast<double>(options.steps) * 1e-9,
                   flops / median * 1e-9, gemm_rate, flops / median * 1e-9 / gemm_rate,
                   static_cast<double>(transformer->activation_bytes()) / (1 << 20),
                   static_cast<double>(usage.ru_maxrss) / 1024, loss,
                   options.profile ? Shares(backend, total) : "")
            << std::endl;
  return absl::OkStatus();
}

}  // namespace
}  // namespace anyorder::bench

int main(int argc, char** argv) {
  return anyorder::ReportAndExitStatus("step_bench", anyorder::bench::RunBench(argc, argv));
}
