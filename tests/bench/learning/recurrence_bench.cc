// Scoring a text with recurrence memory (Transformer-XL, Dai et al. 2019, section 3.2): is it the
// same function as one long pass, and how much faster is it than computing a window anew for each
// token?
//
//   recurrence_bench --mode exactness [--tokens N] [--dim N] [--layers N] [--seed N]
//   recurrence_bench --mode speed     [--dim N] [--layers N] [--rounds N] [--attend N]
//
// exactness: losses of all tokens, in segments with a memory that holds everything before them,
// against one causal pass:
//   the largest relative difference, and that of the sums.
//   A control with a quarter of that memory shows that the comparison sees what is missing.
// speed: processor time a token of window - A tokens computed for each token, the last one scored;
//                            segment - segments of A tokens, memory A, every token attends to A
//                            keys (same length);
//                            single  - segments of one token, memory A - 1: the same keys, too.
//   Rounds are interleaved; every round is printed. One lane, random weights, 256 pieces: the
//   softmax costs next to nothing.
//   --attend A measures that A only; default 32, 64 ... 512.

#include <time.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

#include "core/base/philox.h"
#include "core/base/status.h"
#include "core/objective/objective.h"
#include "tests/bench/learning/learner.h"
#include "tests/bench/learning/small_training.h"
#include "tests/bench/options.h"
#include "tests/bench/rounds.h"

namespace anyorder::bench {
namespace {

constexpr int64_t kVocab = 256;

struct Options {
  std::string mode = "exactness";
  int64_t tokens = 512;
  int64_t dim = 128;
  int64_t layers = 4;
  int64_t seed = 1;
  int64_t rounds = 3;
  int64_t attend = 0;  // 0: several
};

ModelConfig MakeModel(const Options& options, int64_t mem_len, ComputeType dtype) {
  ModelConfig model = SmallNetwork(options.layers, options.dim);
  model.mem_len = mem_len;
  model.dtype = dtype;
  return model;
}

std::vector<int32_t> RandomTokens(const Options& options, int64_t size) {
  RandomStream random(static_cast<uint64_t>(options.seed), RandomPurpose::kPairs, 0, 0);
  std::vector<int32_t> tokens(static_cast<size_t>(size));
  for (int32_t& token : tokens)
    token = static_cast<int32_t>(random.Below(kVocab));
  return tokens;
}

// A causal language model that reads `seq_len` tokens at a time, with memory `mem_len`.
class Scorer {
 public:
  static absl::StatusOr<std::unique_ptr<Scorer>> Create(const Options& options, int64_t seq_len,
                                                        int64_t mem_len, ComputeType dtype,
                                                        kernels::Backend& backend) {
    std::unique_ptr<Scorer> scorer(new Scorer(MakeModel(options, mem_len, dtype), seq_len));
    SamplingConfig sampling;
    sampling.seq_len = seq_len;
    sampling.bidirectional = false;
    ANYORDER_ASSIGN_OR_RETURN(scorer->objective_,
                              MakeObjective("causal_lm", scorer->model_, sampling));
    scorer->shape_ = scorer->objective_->Shape(1);
    scorer->backend_ = &backend;
    const ParameterLayout layout(scorer->model_, kVocab);
    std::vector<float> initial(static_cast<size_t>(layout.num_elements()));
    InitializeParameters(layout, scorer->model_, static_cast<uint64_t>(options.seed), 0,
                         layout.num_elements(), initial.data());
    scorer->weights_ = std::make_unique<FlatTensor>(backend, ToDType(dtype), layout.num_elements());
    for (size_t i = 0; i < initial.size(); ++i) {
      if (dtype == ComputeType::kFloat64) {
        scorer->weights_->view.data<double>()[i] = initial[i];
      } else {
        scorer->weights_->view.data<float>()[i] = initial[i];
      }
    }
    return scorer;
  }

  // Reads out the last token of each segment only.
  void ScoreLastOnly() { shape_.targets = 1; }
  // Every token sees itself and the attend - 1 tokens before it.
  void LimitContext(int64_t attend) { attend_ = attend; }

  absl::Status Prepare() {
    ANYORDER_ASSIGN_OR_RETURN(runner_, MemoryRunner::Create(model_, kVocab, shape_, *backend_));
    return absl::OkStatus();
  }

  // Segment `step`: tokens [first, first + seq_len) and, as labels, those one further. Returns the
  // summed loss.
  double Run(const std::vector<int32_t>& tokens, int64_t first, int64_t step) {
    const Batch batch = MakeBatch(tokens, first, step);
    return runner_->Run(batch, weights_->view).loss_sum;
  }
  const std::vector<float>& losses() const { return runner_->losses(); }

 private:
  Scorer(const ModelConfig& model, int64_t seq_len) : model_(model), seq_len_(seq_len) {}

  Batch MakeBatch(const std::vector<int32_t>& tokens, int64_t first, int64_t step) const {
    TextSample sample;
    sample.step = step;
    sample.tokens.assign(tokens.begin() + first, tokens.begin() + first + seq_len_);
    sample.next_tokens.assign(tokens.begin() + first + 1, tokens.begin() + first + seq_len_ + 1);
    sample.segment.assign(static_cast<size_t>(seq_len_), 0);
    Batch batch(objective_->Shape(1));
    objective_->BuildLane(sample, 0, batch);
    if (shape_.targets == 1) {
      batch.shape = shape_;
      batch.readout_rows = {static_cast<int32_t>(seq_len_ - 1)};
      batch.labels = {batch.labels.back()};
      batch.weights = {1.0f};
    }
    if (attend_ > 0) {
      batch.bands.assign(static_cast<size_t>(model_.num_layers * model_.num_heads),
                         kernels::Band{static_cast<int32_t>(attend_ - 1), -1, 1});
    }
    return batch;
  }

  ModelConfig model_;
  int64_t seq_len_;
  int64_t attend_ = 0;
  BatchShape shape_;
  kernels::Backend* backend_ = nullptr;
  std::unique_ptr<Objective> objective_;
  std::unique_ptr<FlatTensor> weights_;
  std::unique_ptr<MemoryRunner> runner_;
};

absl::Status CompareWithOnePass(const Options& options, int64_t segment_len, int64_t memory_divisor,
                                ComputeType dtype, kernels::Backend& backend) {
  const int64_t segments = options.tokens / segment_len;
  const int64_t size = segments * segment_len;
  const int64_t mem_len = (size - segment_len) / memory_divisor;
  const std::vector<int32_t> tokens = RandomTokens(options, size + 1);
  ANYORDER_ASSIGN_OR_RETURN(const auto whole, Scorer::Create(options, size, 0, dtype, backend));
  ANYORDER_ASSIGN_OR_RETURN(const auto parts,
                            Scorer::Create(options, segment_len, mem_len, dtype, backend));
  ANYORDER_RETURN_IF_ERROR(whole->Prepare());
  ANYORDER_RETURN_IF_ERROR(parts->Prepare());
  const double whole_sum = whole->Run(tokens, 0, 0);
  double parts_sum = 0;
  double largest = 0;
  for (int64_t step = 0; step < segments; ++step) {
    parts_sum += parts->Run(tokens, step * segment_len, step);
    for (int64_t i = 0; i < segment_len; ++i) {
      const double expected = whole->losses()[step * segment_len + i];
      largest = std::max(largest, std::abs(parts->losses()[i] - expected) / expected);
    }
  }
  std::cout
      << absl::StrFormat(
             "{\"bench\": \"exactness\", \"backend\": \"%s\", \"dtype\": \"%s\", \"dim\": "
             "%d, \"layers\": %d, \"tokens\": %d, \"segment\": %d, \"mem_len\": %d, \"seed\": %d, "
             "\"mean_loss\": %.6f, \"largest_relative_difference\": %.3g, "
             "\"relative_difference_of_sums\": %.3g}",
             backend.name(), dtype == ComputeType::kFloat64 ? "fp64" : "fp32", options.dim,
             options.layers, size, segment_len, mem_len, options.seed,
             whole_sum / static_cast<double>(size), largest,
             std::abs(parts_sum - whole_sum) / whole_sum)
      << std::endl;
  return absl::OkStatus();
}

absl::Status MeasureExactness(const Options& options) {
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Backend> cpu,
                            kernels::MakeCpuBackend({.num_threads = 1}));
  const std::unique_ptr<kernels::Backend> reference = kernels::MakeReferenceBackend();
  for (const int64_t segment_len : {1, 37, 64, 128}) {
    if (segment_len > options.tokens) continue;
    ANYORDER_RETURN_IF_ERROR(
        CompareWithOnePass(options, segment_len, 1, ComputeType::kFloat32, *cpu));
  }
  ANYORDER_RETURN_IF_ERROR(CompareWithOnePass(options, std::min<int64_t>(64, options.tokens), 4,
                                              ComputeType::kFloat32, *cpu));
  // The reference is slow: two layers and few tokens show the same.
  Options small = options;
  small.dim = 32;
  small.layers = 2;
  small.tokens = std::min<int64_t>(options.tokens, 96);
  return CompareWithOnePass(small, std::min<int64_t>(16, small.tokens), 1, ComputeType::kFloat64,
                            *reference);
}

// Median seconds of one call. Calls repeat for 50 ms at least, so that the clock's own error does
// not matter.
template <typename Call>
double MedianSeconds(Call call) {
  call();
  std::vector<double> seconds;
  double total = 0;
  while (total < 0.05 || seconds.size() < 3) {
    const double begin = ProcessorSeconds();
    call();
    seconds.push_back(ProcessorSeconds() - begin);
    total += seconds.back();
  }
  return Median(seconds);
}

absl::Status MeasureRound(const Options& options, int64_t attend, int64_t round,
                          kernels::Backend& backend) {
  const ComputeType dtype = ComputeType::kFloat32;
  const std::vector<int32_t> tokens = RandomTokens(options, attend + 1);
  ANYORDER_ASSIGN_OR_RETURN(const auto window, Scorer::Create(options, attend, 0, dtype, backend));
  window->ScoreLastOnly();
  ANYORDER_ASSIGN_OR_RETURN(const auto segment,
                            Scorer::Create(options, attend, attend, dtype, backend));
  segment->LimitContext(attend);
  ANYORDER_ASSIGN_OR_RETURN(const auto single,
                            Scorer::Create(options, 1, attend - 1, dtype, backend));
  for (Scorer* scorer : {window.get(), segment.get(), single.get()})
    ANYORDER_RETURN_IF_ERROR(scorer->Prepare());
  // Late enough for every memory slot to hold a state.
  const int64_t step = attend;
  const double window_seconds = MedianSeconds([&] { window->Run(tokens, 0, step); });
  const double segment_seconds =
      MedianSeconds([&] { segment->Run(tokens, 0, step); }) / static_cast<double>(attend);
  const double single_seconds = MedianSeconds([&] { single->Run(tokens, 0, step); });
  std::cout << absl::StrFormat(
                   "{\"bench\": \"speed\", \"backend\": \"%s\", \"dim\": %d, "
                   "\"layers\": %d, \"attend\": %d, \"round\": %d, \"window_us\": %.3f, "
                   "\"segment_us\": %.3f, \"single_us\": %.3f, \"speedup\": %.3f, "
                   "\"single_speedup\": %.3f}",
                   backend.name(), options.dim, options.layers, attend, round, window_seconds * 1e6,
                   segment_seconds * 1e6, single_seconds * 1e6, window_seconds / segment_seconds,
                   window_seconds / single_seconds)
            << std::endl;
  return absl::OkStatus();
}

absl::Status MeasureSpeed(const Options& options) {
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Backend> backend,
                            kernels::MakeCpuBackend({.num_threads = 1}));
  std::vector<int64_t> lengths = {32, 64, 128, 256, 512};
  if (options.attend > 0) lengths = {options.attend};
  for (int64_t round = 0; round < options.rounds; ++round) {
    for (const int64_t attend : lengths)
      ANYORDER_RETURN_IF_ERROR(MeasureRound(options, attend, round, *backend));
  }
  return absl::OkStatus();
}

absl::Status RunProgram(int argc, char** argv) {
  Options options;
  ANYORDER_RETURN_IF_ERROR(ParseOptions(argc, argv,
                                        {{"--mode", &options.mode},
                                         {"--tokens", &options.tokens},
                                         {"--dim", &options.dim},
                                         {"--layers", &options.layers},
                                         {"--seed", &options.seed},
                                         {"--rounds", &options.rounds},
                                         {"--attend", &options.attend}}));
  if (options.tokens < 2 || options.dim < 32 || options.layers < 1 || options.attend == 1) {
    return absl::InvalidArgumentError(
        "--tokens and --attend must be at least 2, --dim 32, --layers 1");
  }
  if (options.mode == "exactness") return MeasureExactness(options);
  if (options.mode == "speed") return MeasureSpeed(options);
  return absl::InvalidArgumentError("--mode must be exactness or speed");
}

}  // namespace
}  // namespace anyorder::bench

int main(int argc, char** argv) {
  return anyorder::ReportAndExitStatus("recurrence_bench", anyorder::bench::RunProgram(argc, argv));
}
