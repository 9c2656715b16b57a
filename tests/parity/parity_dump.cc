// Writes what the network makes of real batches, so that another implementation can be asked the same.
//
// Usage: parity_dump RUN_DIR STEPS OUTPUT
// The weights are those of the run's newest checkpoint; the first STEPS steps of the run's own data go through the
// network without dropout, all lanes in one microbatch, each step reading the memory that the step before wrote.
// OUTPUT is one safetensors file with tensors "STEP.NAME": the sampler's facts, as drawn, and the results; gradients
// of the sum of losses are "STEP.gradient/PARAMETER".

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "ckpt/reader.h"
#include "core/base/status.h"
#include "core/model/objective.h"
#include "core/model/transformer.h"
#include "core/train/config_file.h"
#include "core/train/run_directory.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "kernels/backend.h"
#include "tests/parity/tensor_dump.h"

namespace anyorder {
namespace {

// The run's network, data and weights.
struct Run {
  RunConfig config;
  std::unique_ptr<data::Dataset> dataset;
  std::unique_ptr<Objective> objective;
  std::unique_ptr<data::Sampler> sampler;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<Transformer> transformer;
  std::vector<float> weights;
};

absl::StatusOr<Run> OpenRun(const std::string& run_dir) {
  Run run;
  ANYORDER_ASSIGN_OR_RETURN(run.config, LoadRunConfig(RunDirectory(run_dir).config, {}));
  const RunConfig& config = run.config;
  ANYORDER_ASSIGN_OR_RETURN(run.dataset, data::Dataset::Open(config.data.shards));
  ANYORDER_ASSIGN_OR_RETURN(run.objective,
                            MakeObjective(config.objective.name, config.model, config.sampling));
  ANYORDER_ASSIGN_OR_RETURN(run.sampler,
                            data::Sampler::Create(*run.dataset,
                                                  config.sampling,
                                                  run.objective->sample_kind(),
                                                  static_cast<uint64_t>(config.train.seed),
                                                  config.train.lanes));
  ANYORDER_ASSIGN_OR_RETURN(run.backend, kernels::MakeCpuBackend({}));
  ANYORDER_ASSIGN_OR_RETURN(
      run.transformer,
      Transformer::Create(config.model,
                          static_cast<int64_t>(run.dataset->index().vocab_size),
                          run.objective->Shape(config.train.lanes),
                          *run.backend));
  ANYORDER_ASSIGN_OR_RETURN(const std::string newest,
                            ckpt::FindNewestGood(run_dir, /*quarantine_bad=*/false));
  ANYORDER_ASSIGN_OR_RETURN(const ckpt::Checkpoint checkpoint, ckpt::Checkpoint::Open(newest));
  run.weights.resize(run.transformer->layout().num_elements());
  ANYORDER_RETURN_IF_ERROR(
      checkpoint.Read("master", 0, static_cast<int64_t>(run.weights.size()), run.weights.data()));
  return run;
}

// One step of all lanes; `memory` is read, then replaced by what the step leaves.
absl::Status RunStep(Run& run, int64_t step, std::vector<float>& memory, TensorDump& dump) {
  const RunConfig& config = run.config;
  const int64_t lanes = config.train.lanes;
  const int64_t targets = run.objective->Shape(lanes).targets;
  Batch batch(run.objective->Shape(lanes));
  std::vector<TextSample> samples;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    ANYORDER_ASSIGN_OR_RETURN(TextSample sample, run.sampler->Sample(lane, step));
    run.objective->BuildLane(sample, lane, batch);
    samples.push_back(std::move(sample));
  }
  const Shape memory_shape{
      lanes, config.model.num_layers, config.model.mem_len, config.model.model_dim};
  std::vector<float> memory_out(memory.size());
  StepArgs args;
  args.batch = &batch;
  args.weights = ConstTensorView(run.weights.data(), {static_cast<int64_t>(run.weights.size())});
  if (!memory.empty()) {
    args.memory_in = ConstTensorView(memory.data(), memory_shape);
    args.memory_out = TensorView(memory_out.data(), memory_shape);
  }
  std::vector<float> gradients(run.weights.size());
  args.gradients = TensorView(gradients.data(), args.weights.shape());
  run.transformer->Run(args, {});
  memory = std::move(memory_out);

  dump.AddSamples(step, samples);
  dump.Add(step, "labels", {lanes, targets}, batch.labels);
  dump.Add(step, "weights", {lanes, targets}, batch.weights);
  dump.Add(step, "losses", {lanes, targets}, run.transformer->readout_losses());
  if (!memory.empty()) dump.Add(step, "memory", memory_shape, memory);
  for (const ParameterInfo& info : run.transformer->layout().parameters()) {
    dump.Add(step,
             absl::StrCat("gradient/", info.name),
             info.shape,
             std::vector<float>(gradients.begin() + info.offset, gradients.begin() + info.end()));
  }
  return absl::OkStatus();
}

absl::Status DumpRun(const std::string& run_dir, int64_t steps, const std::string& output) {
  ANYORDER_ASSIGN_OR_RETURN(Run run, OpenRun(run_dir));
  const ModelConfig& model = run.config.model;
  if (model.dtype != ComputeType::kFloat32 || model.dropout > 0 || model.attention_dropout > 0)
    return absl::InvalidArgumentError("parity_dump takes fp32 runs without dropout");
  std::vector<float> memory(run.config.train.lanes * model.num_layers * model.mem_len *
                            model.model_dim);
  TensorDump dump;
  for (int64_t step = 0; step < steps; ++step) {
    ANYORDER_RETURN_IF_ERROR(RunStep(run, step, memory, dump));
  }
  return dump.Write(output, {{"perm_size", absl::StrCat(run.config.sampling.perm_size)}});
}

}  // namespace
}  // namespace anyorder

int main(int argc, char** argv) {
  int64_t steps = 0;
  if (argc != 4 || !absl::SimpleAtoi(argv[2], &steps) || steps < 1) {
    std::fprintf(stderr, "usage: parity_dump RUN_DIR STEPS OUTPUT\n");
    return 64;
  }
  const absl::Status status = anyorder::DumpRun(argv[1], steps, argv[3]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "parity_dump: %s\n", std::string(status.message()).c_str());
  return anyorder::ExitStatusFor(status);
}
