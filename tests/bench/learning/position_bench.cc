// Context fragmentation on real text (Transformer-XL, Dai et al. 2019, section 3.1): a causal model
// that reads segments of T tokens knows least at their beginnings. Held-out loss by position inside
// a segment, with memory or without.
//
//   position_bench --train SHARDS --heldout SHARDS [--mem N] [--seq-len T] [--steps N] [--seed N]
//   [--dim N] [--layers N]
//                  [--lanes N] [--lr RATE] [--threads N]
//
// Prints one JSON object: mean loss in nats, and that of each position. Training and evaluation
// read the same segments in the same order whatever the memory, so that differences between runs of
// one seed are paired.

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "core/base/status.h"
#include "core/objective/objective.h"
#include "data/dataset/dataset.h"
#include "data/sampling/sampler.h"
#include "tests/bench/learning/learner.h"
#include "tests/bench/learning/small_training.h"
#include "tests/bench/options.h"

namespace anyorder::bench {
namespace {

struct Options {
  std::string train;
  std::string heldout;
  int64_t mem_len = 0;
  int64_t seq_len = 32;
  int64_t steps = 1000;
  int64_t seed = 1;
  int64_t dim = 128;
  int64_t layers = 3;
  int64_t lanes = 16;
  int64_t threads = 1;
  double learning_rate = 1e-3;
};

absl::StatusOr<Batch> ReadBatch(const Objective& objective, const data::Sampler& sampler,
                                int64_t lanes, int64_t step) {
  Batch batch(objective.Shape(lanes));
  for (int64_t lane = 0; lane < lanes; ++lane) {
    ANYORDER_ASSIGN_OR_RETURN(const TextSample sample, sampler.Sample(lane, step));
    objective.BuildLane(sample, lane, batch);
  }
  return batch;
}

absl::Status RunBench(const Options& options) {
  ModelConfig model = SmallNetwork(options.layers, options.dim);
  model.mem_len = options.mem_len;
  SamplingConfig sampling;
  sampling.seq_len = options.seq_len;
  sampling.bidirectional = false;
  ANYORDER_ASSIGN_OR_RETURN(
      const std::unique_ptr<kernels::Backend> backend,
      kernels::MakeCpuBackend({.num_threads = static_cast<int>(options.threads)}));
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<Objective> objective,
                            MakeObjective("causal_lm", model, sampling));
  ANYORDER_ASSIGN_OR_RETURN(const auto train, data::Dataset::Open(options.train));
  ANYORDER_ASSIGN_OR_RETURN(const auto heldout, data::Dataset::Open(options.heldout));
  const auto seed = static_cast<uint64_t>(options.seed);
  const auto open_sampler = [&](const data::Dataset& text) {
    return data::Sampler::Create(text, sampling, SampleKind::kContiguous, seed, options.lanes);
  };
  ANYORDER_ASSIGN_OR_RETURN(const auto sampler, open_sampler(*train));
  ANYORDER_ASSIGN_OR_RETURN(const auto heldout_sampler, open_sampler(*heldout));
  const int64_t vocab_size = train->index().vocab_size;
  const BatchShape shape = objective->Shape(options.lanes);
  ANYORDER_ASSIGN_OR_RETURN(const auto learner,
                            Learner::Create(model, vocab_size, shape, seed, *backend));
  OptimizerConfig optimizer;
  optimizer.learning_rate = options.learning_rate;
  optimizer.warmup_steps = options.steps / 10;
  optimizer.bias_correction = true;
  for (int64_t step = 0; step < options.steps; ++step) {
    ANYORDER_ASSIGN_OR_RETURN(const Batch batch,
                              ReadBatch(*objective, *sampler, options.lanes, step));
    learner->Step(batch, optimizer, options.steps);
  }

  // The same segments count for every memory up to four segments.
  constexpr int64_t kFirstScored = 4;
  ANYORDER_ASSIGN_OR_RETURN(const auto runner,
                            MemoryRunner::Create(model, vocab_size, shape, *backend));
  std::vector<double> sums(static_cast<size_t>(options.seq_len));
  int64_t scored = 0;
  for (int64_t step = 0; step < heldout_sampler->steps_per_epoch(); ++step) {
    ANYORDER_ASSIGN_OR_RETURN(const Batch batch,
                              ReadBatch(*objective, *heldout_sampler, options.lanes, step));
    runner->Run(batch, learner->weights());
    if (step < kFirstScored) continue;
    ++scored;
    for (size_t i = 0; i < runner->losses().size(); ++i)
      sums[i % sums.size()] += runner->losses()[i];
  }
  double mean = 0;
  for (double& sum : sums) {
    sum /= static_cast<double>(scored * options.lanes);
    mean += sum / static_cast<double>(sums.size());
  }
  std::cout << absl::StrFormat(
                   "{\"bench\": \"position\", \"mem_len\": %d, \"seq_len\": %d, \"dim\": %d, "
                   "\"layers\": %d, \"lanes\": %d, \"steps\": %d, \"seed\": %d, "
                   "\"scored_tokens\": %d, \"loss\": %.5f, \"loss_by_position\": [%s]}",
                   options.mem_len, options.seq_len, options.dim, options.layers, options.lanes,
                   options.steps, options.seed, scored * options.lanes * options.seq_len, mean,
                   absl::StrJoin(sums, ", ",
                                 [](std::string* out, double loss) {
                                   absl::StrAppendFormat(out, "%.4f", loss);
                                 }))
            << std::endl;
  return absl::OkStatus();
}

absl::Status RunProgram(int argc, char** argv) {
  Options options;
  ANYORDER_RETURN_IF_ERROR(ParseOptions(argc, argv,
                                        {{"--train", &options.train},
                                         {"--heldout", &options.heldout},
                                         {"--mem", &options.mem_len},
                                         {"--seq-len", &options.seq_len},
                                         {"--steps", &options.steps},
                                         {"--seed", &options.seed},
                                         {"--dim", &options.dim},
                                         {"--layers", &options.layers},
                                         {"--lanes", &options.lanes},
                                         {"--threads", &options.threads},
                                         {"--lr", &options.learning_rate}}));
  return RunBench(options);
}

}  // namespace
}  // namespace anyorder::bench

int main(int argc, char** argv) {
  return anyorder::ReportAndExitStatus("position_bench", anyorder::bench::RunProgram(argc, argv));
}
