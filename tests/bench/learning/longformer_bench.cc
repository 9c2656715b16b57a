// Longformer's recipes (Beltagy et al. 2020, sections 4 and 5) on real text, each against what it
// replaces.
//
//   longformer_bench --mode pairs|positions|stages|layout --train SHARDS --heldout SHARDS [--steps
//   N] [--seed N] [--dim N] [--lr RATE]
//                    [--threads N]
//
//   positions a masked LM of 64 slots gets 256: new rows of its position table copied, or drawn.
//   Held-out loss before any step and
//               after a tenth of the steps more
//   pairs the same on text in which every symbol stands twice, "a a c c b b", so that a hidden one
//   is known from the slot beside it,
//               on the side that only its position tells: ln V for whoever does not know positions,
//               near 0 for whoever does. Needs no shards
//   stages a causal LM whose length and windows double twice, the learning rate halving, against
//   the final ones from the
//               beginning, at equal multiply-adds
//   layout windows that grow from layer to layer, that fall, and equal ones of the same sum, at
//   equal steps
//
// Prints a JSON line a result. `steps` are those of 1024 tokens. Each phase begins with fresh Adam
// moments and a warm-up of a tenth, as runs that follow one another do; then the rate is constant.

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"

#include "core/base/philox.h"
#include "core/base/status.h"
#include "core/config/attention_windows.h"
#include "core/network/weight_transfer.h"
#include "core/objective/objective.h"
#include "data/dataset/dataset.h"
#include "data/sampling/sampler.h"
#include "tests/bench/learning/learner.h"
#include "tests/bench/options.h"

namespace anyorder::bench {
namespace {

constexpr int64_t kTokensAStep = 1024;
constexpr int64_t kHeads = 4;
// Symbols of the made text; CLS and <mask> follow them.
constexpr int64_t kSymbols = 16;

struct Options {
  std::string mode;
  std::string train;
  std::string heldout;
  int64_t steps = 600;
  int64_t seed = 1;
  int64_t dim = 64;
  int64_t threads = 1;
  double learning_rate = 2e-3;
};

// One run of a sequence.
struct Phase {
  std::string objective = "causal_lm";
  ModelConfig model;
  int64_t slots = 256;
  int64_t steps = 0;
  double learning_rate = 0;
  bool pairs = false;  // of made text
};

ModelConfig CausalModel(const Options& options, int64_t layers, const std::string& windows) {
  ModelConfig model;
  model.num_layers = layers;
  model.model_dim = options.dim;
  model.num_heads = kHeads;
  model.head_dim = options.dim / kHeads;
  model.ffn_dim = 4 * options.dim;
  model.mem_len = 0;
  model.segments = Segments::kNone;
  model.layer_norm = LayerNormPlace::kPre;
  model.dropout = model.attention_dropout = 0.0;
  model.init_range = 1.0 / std::sqrt(static_cast<double>(options.dim));
  model.attention_windows = windows;
  return model;
}

ModelConfig MaskedModel(const Options& options, int64_t positions) {
  ModelConfig model = CausalModel(options, 3, "");
  model.layer_norm = LayerNormPlace::kPost;
  model.positions = Positions::kLearned;
  model.max_positions = positions;
  model.embedding_layer_norm = model.attention_biases = model.mlm_head = true;
  return model;
}

// Multiply-adds of a token's forward pass, but for the softmax over the vocabulary, which no recipe
// changes: 12 d^2 in a layer, and 3 d for each key that it sees (content, position, value).
double MultiplyAdds(const Phase& phase) {
  const std::vector<kernels::Band> bands = *AttentionWindows(phase.model);
  const auto dim = static_cast<double>(phase.model.model_dim);
  double sum = 12 * dim * dim * static_cast<double>(phase.model.num_layers);
  for (const kernels::Band& band : bands) {
    double keys = 0;
    for (int64_t i = 0; i < phase.slots; ++i)
      keys += static_cast<double>(std::min<int64_t>(i, band.left) + 1);
    sum += 3 * dim / kHeads * keys / static_cast<double>(phase.slots);
  }
  return sum;
}

class Lab {
 public:
  static absl::StatusOr<std::unique_ptr<Lab>> Open(const Options& options) {
    std::unique_ptr<Lab> lab(new Lab(options));
    ANYORDER_ASSIGN_OR_RETURN(
        lab->backend_, kernels::MakeCpuBackend({.num_threads = static_cast<int>(options.threads)}));
    if (options.mode == "pairs") return lab;
    ANYORDER_ASSIGN_OR_RETURN(lab->train_, data::Dataset::Open(options.train));
    ANYORDER_ASSIGN_OR_RETURN(lab->heldout_, data::Dataset::Open(options.heldout));
    return lab;
  }

  // Trains from `start`, or from initial weights where it is empty; the weights afterwards.
  absl::StatusOr<std::vector<float>> Train(const Phase& phase, const std::vector<float>& start) {
    ANYORDER_ASSIGN_OR_RETURN(const Reader reader, OpenReader(phase, train_.get()));
    ANYORDER_ASSIGN_OR_RETURN(
        const auto learner,
        Learner::Create(phase.model, vocab_size(), reader.objective->Shape(reader.lanes),
                        static_cast<uint64_t>(options_.seed), *backend_));
    if (!start.empty()) learner->SetWeights(start);
    OptimizerConfig optimizer;
    optimizer.learning_rate = phase.learning_rate;
    optimizer.warmup_steps = phase.steps / 10;
    optimizer.decay = LearningRateDecay::kConstant;
    optimizer.bias_correction = true;
    optimizer.max_grad_norm = 0.25;
    for (int64_t step = 0; step < phase.steps; ++step) {
      ANYORDER_ASSIGN_OR_RETURN(const Batch batch, ReadBatch(reader, step));
      learner->Step(batch, optimizer, phase.steps);
    }
    const float* const weights = learner->weights().data<float>();
    return std::vector<float>(weights, weights + learner->weights().num_elements());
  }

  // Held-out nats a target.
  absl::StatusOr<double> Evaluate(const Phase& phase, const std::vector<float>& weights) {
    ANYORDER_ASSIGN_OR_RETURN(const Reader reader, OpenReader(phase, heldout_.get()));
    ANYORDER_ASSIGN_OR_RETURN(
        const auto runner, MemoryRunner::Create(phase.model, vocab_size(),
                                                reader.objective->Shape(reader.lanes), *backend_));
    const ConstTensorView view(weights.data(), {static_cast<int64_t>(weights.size())});
    double sum = 0;
    double divisor = 0;
    const int64_t steps =
        phase.pairs ? 40 : std::min<int64_t>(40, reader.sampler->steps_per_epoch());
    for (int64_t step = 0; step < steps; ++step) {
      // Made text is new in every step; training has not seen these.
      ANYORDER_ASSIGN_OR_RETURN(const Batch batch,
                                ReadBatch(reader, step + (phase.pairs ? 1000000 : 0)));
      const StepResult result = runner->Run(batch, view);
      sum += result.loss_sum;
      divisor += result.divisor;
    }
    return sum / divisor;
  }

  absl::StatusOr<std::vector<float>> Lengthen(const ModelConfig& from,
                                              const std::vector<float>& weights,
                                              const ModelConfig& to, NewPositions positions) const {
    const ParameterLayout before(from, vocab_size()), after(to, vocab_size());
    std::vector<float> result(static_cast<size_t>(after.num_elements()));
    ANYORDER_ASSIGN_OR_RETURN(const TransferPlan plan,
                              PlanTransfer(before.parameters(), after, positions));
    InitializeParameters(after, to, static_cast<uint64_t>(options_.seed) + 1000, 0,
                         after.num_elements(), result.data());
    ANYORDER_RETURN_IF_ERROR(ApplyTransfer(plan, 0, after.num_elements(), result.data(),
                                           [&](int64_t source, int64_t count, float* out) {
                                             std::copy_n(weights.begin() + source, count, out);
                                             return absl::OkStatus();
                                           }));
    return result;
  }

 private:
  struct Reader {
    std::unique_ptr<Objective> objective;
    std::unique_ptr<data::Sampler> sampler;
    int64_t lanes = 0;
    int64_t made_tokens = 0;  // of a lane, where there is no sampler
    uint64_t seed = 0;
  };

  explicit Lab(const Options& options) : options_(options) {}
  int64_t vocab_size() const {
    return train_ == nullptr ? kSymbols + 2 : static_cast<int64_t>(train_->index().vocab_size);
  }

  absl::StatusOr<Reader> OpenReader(const Phase& phase, const data::Dataset* text) const {
    SamplingConfig sampling;
    sampling.bidirectional = false;
    sampling.spans = SpanKind::kSingle;
    sampling.num_predict = phase.slots;
    // CLS stands before the text of a masked model.
    sampling.seq_len = phase.objective == "longformer" ? phase.slots - 1 : phase.slots;
    Reader reader;
    reader.lanes = kTokensAStep / phase.slots;
    ANYORDER_ASSIGN_OR_RETURN(reader.objective,
                              MakeObjective(phase.objective, phase.model, sampling));
    reader.seed = static_cast<uint64_t>(options_.seed);
    if (phase.pairs) reader.made_tokens = sampling.seq_len;
    if (phase.pairs) return reader;
    ANYORDER_ASSIGN_OR_RETURN(
        reader.sampler, data::Sampler::Create(*text, sampling, reader.objective->sample_kind(),
                                              static_cast<uint64_t>(options_.seed), reader.lanes));
    return reader;
  }

  // Slot 0 is CLS: pairs are slots 1 and 2, 3 and 4, ...
  static TextSample MakePairs(const Reader& reader, int64_t lane, int64_t step) {
    RandomStream random(reader.seed, RandomPurpose::kPairs, step, lane);
    TextSample sample;
    sample.lane = lane;
    sample.step = step;
    sample.seed = reader.seed;
    sample.vocabulary = {.separator = 0,
                         .classifier = static_cast<int32_t>(kSymbols),
                         .mask = static_cast<int32_t>(kSymbols + 1),
                         .size = kSymbols};
    sample.tokens.resize(static_cast<size_t>(reader.made_tokens));
    for (size_t i = 0; i < sample.tokens.size(); ++i) {
      sample.tokens[i] =
          i % 2 == 1 ? sample.tokens[i - 1] : static_cast<int32_t>(random.Below(kSymbols));
    }
    return sample;
  }

  static absl::StatusOr<Batch> ReadBatch(const Reader& reader, int64_t step) {
    Batch batch(reader.objective->Shape(reader.lanes));
    for (int64_t lane = 0; lane < reader.lanes; ++lane) {
      absl::StatusOr<TextSample> sample =
          reader.made_tokens > 0 ? absl::StatusOr<TextSample>(MakePairs(reader, lane, step))
                                 : reader.sampler->Sample(lane, step);
      ANYORDER_RETURN_IF_ERROR(sample.status());
      reader.objective->BuildLane(*sample, lane, batch);
    }
    return batch;
  }

  const Options options_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<data::Dataset> train_, heldout_;
};

void Print(const Options& options, const std::string& variant, int64_t steps, double nats) {
  std::cout
      << absl::StrFormat(
             R"({"bench": "longformer", "mode": "%s", "variant": "%s", "steps": %d, "seed": %d, "dim": %d, "nats": %.5f})",
             options.mode, variant, steps, options.seed, options.dim, nats)
      << std::endl;
}

absl::Status CompareNewPositions(const Options& options, Lab& lab) {
  const bool pairs = options.mode == "pairs";
  Phase before = {"longformer",  MaskedModel(options, 64), 64,
                  options.steps, options.learning_rate,    pairs};
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<float> weights, lab.Train(before, {}));
  ANYORDER_ASSIGN_OR_RETURN(const double nats, lab.Evaluate(before, weights));
  Print(options, "64 slots", 0, nats);
  Phase after = {"longformer",
                 MaskedModel(options, 256),
                 256,
                 std::max<int64_t>(1, options.steps / 10),
                 options.learning_rate / 4,
                 pairs};
  after.model.attention_windows = "32:32";
  after.model.global_projections = true;
  for (const NewPositions positions : {NewPositions::kCopy, NewPositions::kRandom}) {
    const std::string name = positions == NewPositions::kCopy ? "copied" : "random";
    ANYORDER_ASSIGN_OR_RETURN(const std::vector<float> start,
                              lab.Lengthen(before.model, weights, after.model, positions));
    ANYORDER_ASSIGN_OR_RETURN(const double first, lab.Evaluate(after, start));
    Print(options, name, 0, first);
    ANYORDER_ASSIGN_OR_RETURN(const std::vector<float> trained, lab.Train(after, start));
    ANYORDER_ASSIGN_OR_RETURN(const double last, lab.Evaluate(after, trained));
    Print(options, name, after.steps, last);
  }
  return absl::OkStatus();
}

absl::Status CompareStages(const Options& options, Lab& lab) {
  const std::vector<std::string> windows = {"4:0; 8:0; 16:0", "8:0; 16:0; 32:0",
                                            "16:0; 32:0; 64:0"};
  // Published: 75, 9, 9, 6 and 1 % of the steps of five phases.
  const std::vector<double> shares = {0.7, 0.15, 0.15};
  for (const bool staged : {true, false}) {
    std::vector<float> weights;
    int64_t steps = 0;
    Phase phase;
    for (size_t i = 0; i < windows.size(); ++i) {
      Phase growing;
      growing.model = CausalModel(options, 3, windows[i]);
      growing.slots = int64_t{64} << i;
      growing.steps = static_cast<int64_t>(shares[i] * static_cast<double>(options.steps));
      growing.learning_rate = options.learning_rate / static_cast<double>(1 << i);
      phase = growing;
      if (!staged) {
        phase.model = CausalModel(options, 3, windows.back());
        phase.slots = int64_t{64} << (windows.size() - 1);
        phase.steps = static_cast<int64_t>(static_cast<double>(growing.steps) *
                                           MultiplyAdds(growing) / MultiplyAdds(phase));
      }
      ANYORDER_ASSIGN_OR_RETURN(weights, lab.Train(phase, weights));
      steps += phase.steps;
    }
    ANYORDER_ASSIGN_OR_RETURN(const double nats, lab.Evaluate(phase, weights));
    Print(options, staged ? "staged" : "flat", steps, nats);
  }
  return absl::OkStatus();
}

absl::Status CompareLayouts(const Options& options, Lab& lab) {
  const std::vector<std::pair<std::string, std::string>> layouts = {
      {"increasing", "4:0; 8:0; 16:0; 32:0"},
      {"decreasing", "32:0; 16:0; 8:0; 4:0"},
      {"equal", "15:0"}};
  for (const auto& [name, windows] : layouts) {
    Phase phase;
    phase.model = CausalModel(options, 4, windows);
    phase.steps = options.steps;
    phase.learning_rate = options.learning_rate;
    ANYORDER_ASSIGN_OR_RETURN(const std::vector<float> weights, lab.Train(phase, {}));
    ANYORDER_ASSIGN_OR_RETURN(const double nats, lab.Evaluate(phase, weights));
    Print(options, name, phase.steps, nats);
  }
  return absl::OkStatus();
}

absl::Status RunProgram(int argc, char** argv) {
  Options options;
  ANYORDER_RETURN_IF_ERROR(ParseOptions(argc, argv,
                                        {{"--mode", &options.mode},
                                         {"--train", &options.train},
                                         {"--heldout", &options.heldout},
                                         {"--steps", &options.steps},
                                         {"--seed", &options.seed},
                                         {"--dim", &options.dim},
                                         {"--threads", &options.threads},
                                         {"--lr", &options.learning_rate}}));
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<Lab> lab, Lab::Open(options));
  if (options.mode == "positions" || options.mode == "pairs")
    return CompareNewPositions(options, *lab);
  if (options.mode == "stages") return CompareStages(options, *lab);
  if (options.mode == "layout") return CompareLayouts(options, *lab);
  return absl::InvalidArgumentError("--mode must be pairs, positions, stages or layout");
}

}  // namespace
}  // namespace anyorder::bench

int main(int argc, char** argv) {
  return anyorder::ReportAndExitStatus("longformer_bench", anyorder::bench::RunProgram(argc, argv));
}
