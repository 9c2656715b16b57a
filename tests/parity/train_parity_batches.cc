// Writes what a run reads at each of its steps, so that another implementation can be trained on
// the same.
//
// Usage: train_parity_batches RUN_DIR OUTPUT
// OUTPUT is one safetensors file with tensors "STEP.NAME" for every step of the run: the sampler's
// facts of all lanes, as drawn, and the labels and weights that the objective makes of them.

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/objective/objective.h"
#include "core/train/run/config_file.h"
#include "core/train/run/run_directory.h"
#include "data/dataset/dataset.h"
#include "data/sampling/sampler.h"
#include "tests/parity/tensor_dump.h"

namespace anyorder {
namespace {

absl::Status DumpBatches(const std::string& run_dir, const std::string& output) {
  ANYORDER_ASSIGN_OR_RETURN(const RunConfig config,
                            LoadRunConfig(RunDirectory(run_dir).config, {}));
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<data::Dataset> dataset,
                            data::Dataset::Open(config.data.shards));
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<Objective> objective,
                            MakeObjective(config.objective.name, config.model, config.sampling));
  const int64_t lanes = config.train.global_batch_size;
  ANYORDER_ASSIGN_OR_RETURN(
      const std::unique_ptr<data::Sampler> sampler,
      data::Sampler::Create(*dataset, config.sampling, objective->sample_kind(),
                            static_cast<uint64_t>(config.train.seed), lanes));
  const BatchShape shape = objective->Shape(lanes);
  TensorDump dump;
  for (int64_t step = 0; step < config.train.steps; ++step) {
    Batch batch(shape);
    std::vector<TextSample> samples;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      ANYORDER_ASSIGN_OR_RETURN(TextSample sample, sampler->Sample(lane, step));
      objective->BuildLane(sample, lane, batch);
      samples.push_back(std::move(sample));
    }
    dump.AddSamples(step, samples);
    dump.Add(step, "labels", {lanes, shape.targets}, batch.labels);
    dump.Add(step, "weights", {lanes, shape.targets}, batch.weights);
  }
  return dump.Write(output, {});
}

}  // namespace
}  // namespace anyorder

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: train_parity_batches RUN_DIR OUTPUT\n");
    return 64;
  }
  const absl::Status status = anyorder::DumpBatches(argv[1], argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "train_parity_batches: %s\n", std::string(status.message()).c_str());
  return anyorder::ExitStatusFor(status);
}
