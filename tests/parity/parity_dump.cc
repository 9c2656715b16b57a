// Writes what the network makes of real batches, so that another implementation can be asked the
// same.
//
// Usage: parity_dump RUN_DIR STEPS OUTPUT [--forward-only | --batches | --bf16]
// The weights are those of the run's newest checkpoint; the first STEPS steps of the run's own data
// go through the network without dropout, all lanes in one microbatch, each step reading the memory
// that the step before wrote. OUTPUT is one safetensors file with tensors "STEP.NAME": the
// sampler's facts, as drawn; the batch's visibility arrays; hidden states "STEP.content/LEVEL" and
// "STEP.query/LEVEL", logits, losses and memory; and, unless --forward-only, gradients of the sum
// of losses, "STEP.gradient/PARAMETER". With a next-sentence head also "STEP.summary_logits", with
// a task head its rows, labels, losses and "STEP.task_logits/LOSS" of each loss. Hidden states only
// of networks like XLNet's. With
// --batches no network runs: only the sampler's facts and the batch's arrays are written. With
// --bf16 the network computes in bf16, whatever the run does, from the weights rounded to it.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "ckpt/reader.h"
#include "ckpt/safetensors.h"
#include "core/base/status.h"
#include "core/objective/objective.h"
#include "core/train/run/config_file.h"
#include "core/train/run/run_directory.h"
#include "data/dataset/dataset.h"
#include "data/sampling/sampler.h"
#include "tests/parity/traced_network.h"

namespace anyorder {
namespace {

// Tensors "STEP.NAME" of one safetensors file.
class TensorDump {
 public:
  template <typename T>
  void Add(int64_t step, absl::string_view name, const Shape& shape, const std::vector<T>& values) {
    const char* const bytes = reinterpret_cast<const char*>(values.data());
    Entry& entry = entries_.emplace_back();
    entry.layout = {absl::StrCat(step, ".", name), DTypeOf<T>(), shape};
    entry.bytes.assign(bytes, bytes + shape.num_elements() * sizeof(T));
  }

  // The sampler's facts of all lanes, as drawn: tokens, segment, order, masked [lanes, seq_len];
  // backward [lanes].
  void AddSamples(int64_t step, const std::vector<TextSample>& samples) {
    std::vector<int32_t> tokens, segment, order, masked, backward;
    for (const TextSample& sample : samples) {
      tokens.insert(tokens.end(), sample.tokens.begin(), sample.tokens.end());
      segment.insert(segment.end(), sample.segment.begin(), sample.segment.end());
      order.insert(order.end(), sample.order.begin(), sample.order.end());
      masked.insert(masked.end(), sample.is_masked.begin(), sample.is_masked.end());
      backward.push_back(sample.backward ? 1 : 0);
    }
    const auto lanes = static_cast<int64_t>(samples.size());
    const Shape rows{lanes, static_cast<int64_t>(tokens.size()) / lanes};
    // What the objective's kind of sample has: denoising no order, labelled examples none of them.
    const auto add = [&](const char* name, const std::vector<int32_t>& values) {
      if (!values.empty()) Add(step, name, rows, values);
    };
    add("tokens", tokens);
    add("segment", segment);
    add("order", order);
    add("masked", masked);
    Add(step, "backward", Shape{lanes}, backward);
  }

  // Errors: those of ckpt::SafetensorsWriter.
  absl::Status Write(const std::string& path) const {
    std::vector<ckpt::SafetensorsEntry> layout;
    for (const Entry& entry : entries_) layout.push_back(entry.layout);
    ASSIGN_OR_RETURN(ckpt::SafetensorsWriter writer,
                     ckpt::SafetensorsWriter::Create(path, layout, {}));
    for (const Entry& entry : entries_) {
      RETURN_IF_ERROR(writer.WriteRange(entry.layout.name, 0, entry.layout.shape.num_elements(),
                                        entry.bytes.data()));
    }
    return writer.Finish();
  }

 private:
  struct Entry {
    ckpt::SafetensorsEntry layout;
    std::vector<char> bytes;
  };

  std::vector<Entry> entries_;
};

// The run's data and, unless only batches are wanted, network and weights.
struct Run {
  RunConfig config;
  std::unique_ptr<data::Dataset> dataset;
  std::unique_ptr<Objective> objective;
  std::unique_ptr<data::Sampler> sampler;
  std::unique_ptr<TracedNetwork> network;
  std::vector<float> weights;
};

absl::StatusOr<Run> OpenRun(const std::string& run_dir, absl::string_view option) {
  Run run;
  ASSIGN_OR_RETURN(run.config, LoadRunConfig(RunDirectory(run_dir).config, {}));
  if (option == "--bf16") run.config.model.dtype = ComputeType::kBFloat16;
  const RunConfig& config = run.config;
  ASSIGN_OR_RETURN(run.dataset, data::Dataset::Open(config.data.shards));
  ASSIGN_OR_RETURN(run.objective, MakeObjective(config));
  ASSIGN_OR_RETURN(run.sampler, data::Sampler::Create(*run.dataset, config.sampling,
                                                      run.objective->sample_kind(),
                                                      static_cast<uint64_t>(config.train.seed),
                                                      config.train.global_batch_size));
  if (option == "--batches") return run;
  ASSIGN_OR_RETURN(
      run.network,
      TracedNetwork::Create(config.model, static_cast<int64_t>(run.dataset->index().vocab_size),
                            run.objective->Shape(config.train.global_batch_size),
                            static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))));
  ASSIGN_OR_RETURN(const std::string newest,
                   ckpt::FindNewestGood(run_dir, /*quarantine_bad=*/false));
  ASSIGN_OR_RETURN(const ckpt::Checkpoint checkpoint, ckpt::Checkpoint::Open(newest));
  run.weights.resize(run.network->layout().num_elements());
  RETURN_IF_ERROR(
      checkpoint.Read("master", 0, static_cast<int64_t>(run.weights.size()), run.weights.data()));
  return run;
}

std::vector<int32_t> Widen(const std::vector<uint8_t>& flags) {
  return std::vector<int32_t>(flags.begin(), flags.end());
}

void AddBatch(int64_t step, const Batch& batch, TensorDump& dump) {
  const BatchShape& shape = batch.shape;
  const Shape rows{shape.num_rows()};
  const Shape keys{shape.batch_size, shape.num_keys()};
  const Shape targets{shape.batch_size, shape.targets};
  dump.Add(step, "row_pos", rows, batch.row_pos);
  dump.Add(step, "row_lim", rows, batch.row_lim);
  dump.Add(step, "row_grp", rows, batch.row_grp);
  dump.Add(step, "row_doc", rows, batch.row_doc);
  dump.Add(step, "row_seg", rows, batch.row_seg);
  dump.Add(step, "row_glob", rows, Widen(batch.row_glob));
  if (shape.next_positions) dump.Add(step, "row_next", rows, batch.row_next);
  dump.Add(step, "key_pos", keys, batch.key_pos);
  dump.Add(step, "key_key", keys, batch.key_key);
  dump.Add(step, "key_grp", keys, batch.key_grp);
  dump.Add(step, "key_doc", keys, batch.key_doc);
  dump.Add(step, "key_seg", keys, batch.key_seg);
  dump.Add(step, "key_glob", keys, Widen(batch.key_glob));
  dump.Add(step, "readout_rows", targets, batch.readout_rows);
  dump.Add(step, "labels", targets, batch.labels);
  dump.Add(step, "weights", targets, batch.weights);
  dump.Add(step, "input", {shape.batch_size, shape.content_rows}, batch.tokens);
  if (shape.next_sentence) {
    dump.Add(step, "summary_labels", {shape.batch_size}, batch.summary_labels);
    dump.Add(step, "summary_rows", {shape.batch_size}, batch.summary_rows);
  }
  if (shape.task_rows == 0) return;
  dump.Add(step, "task_rows", {shape.batch_size, shape.task_rows}, batch.task_rows);
  dump.Add(step, "task_labels", {shape.batch_size}, batch.task_labels);
  dump.Add(step, "task_valid", {shape.batch_size, shape.task_rows}, Widen(batch.task_valid));
  dump.Add(step, "task_scores", {shape.batch_size}, batch.task_scores);
  if (shape.has_tags)
    dump.Add(step, "task_tags", {shape.batch_size, shape.task_rows}, batch.task_tags);
  if (!shape.has_spans) return;
  dump.Add(step, "task_starts", {shape.batch_size}, batch.task_starts);
  dump.Add(step, "task_ends", {shape.batch_size}, batch.task_ends);
  dump.Add(step, "task_classifiers", {shape.batch_size}, batch.task_classifiers);
}

void AddTrace(int64_t step, const Run& run, const StepTrace& trace, TensorDump& dump) {
  const ModelConfig& model = run.config.model;
  const int64_t lanes = run.config.train.global_batch_size;
  const BatchShape shape = run.objective->Shape(lanes);
  for (size_t level = 0; level < trace.query.size(); ++level) {
    if (level < trace.content.size()) {
      dump.Add(step, absl::StrCat("content/", level), {lanes, shape.content_rows, model.model_dim},
               trace.content[level]);
    }
    if (shape.query_rows == 0) continue;
    dump.Add(step, absl::StrCat("query/", level), {lanes, shape.query_rows, model.model_dim},
             trace.query[level]);
  }
  if (!trace.logits.empty()) {
    const int64_t vocab_size = static_cast<int64_t>(trace.logits.size()) / (lanes * shape.targets);
    dump.Add(step, "logits", {lanes, shape.targets, vocab_size}, trace.logits);
  }
  dump.Add(step, "losses", {lanes, shape.targets}, trace.losses);
  if (!trace.task_losses.empty()) dump.Add(step, "task_losses", {lanes}, trace.task_losses);
  for (size_t i = 0; i < trace.task_logits.size(); ++i) {
    const std::vector<float>& logits = trace.task_logits[i];
    const Shape rows{lanes, static_cast<int64_t>(logits.size()) / lanes};
    dump.Add(step, absl::StrCat("task_logits/", i), rows, logits);
  }
  if (!trace.summary_logits.empty()) {
    dump.Add(step, "summary_logits", {lanes, 2}, trace.summary_logits);
    const std::vector<float> loss = {static_cast<float>(trace.next_sentence_loss)};
    dump.Add(step, "next_sentence_loss", {1}, loss);
  }
  if (!trace.memory.empty()) {
    dump.Add(step, "memory", {lanes, model.num_layers, model.mem_len, model.model_dim},
             trace.memory);
  }
  if (trace.gradients.empty()) return;
  for (const ParameterInfo& info : run.network->layout().parameters()) {
    const auto begin = trace.gradients.begin() + info.offset;
    dump.Add(step, absl::StrCat("gradient/", info.name), info.shape,
             std::vector<float>(begin, begin + info.shape.num_elements()));
  }
}

// One step of all lanes; `memory` is read, then replaced by what the step leaves.
absl::Status RunStep(Run& run, int64_t step, bool with_gradients, std::vector<float>& memory,
                     TensorDump& dump) {
  const int64_t lanes = run.config.train.global_batch_size;
  Batch batch(run.objective->Shape(lanes));
  std::vector<TextSample> samples;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    ASSIGN_OR_RETURN(TextSample sample, run.sampler->Sample(lane, step));
    run.objective->BuildLane(sample, lane, batch);
    samples.push_back(std::move(sample));
  }
  dump.AddSamples(step, samples);
  AddBatch(step, batch, dump);
  if (run.network == nullptr) return absl::OkStatus();
  const StepTrace trace = run.network->Run(batch, run.weights, memory, with_gradients);
  memory = trace.memory;
  AddTrace(step, run, trace, dump);
  return absl::OkStatus();
}

absl::Status DumpRun(const std::string& run_dir, int64_t steps, const std::string& output,
                     absl::string_view option) {
  ASSIGN_OR_RETURN(Run run, OpenRun(run_dir, option));
  const ModelConfig& model = run.config.model;
  std::vector<float> memory(run.config.train.global_batch_size * model.num_layers * model.mem_len *
                            model.model_dim);
  TensorDump dump;
  for (int64_t step = 0; step < steps; ++step) {
    RETURN_IF_ERROR(RunStep(run, step, option != "--forward-only", memory, dump));
  }
  return dump.Write(output);
}

}  // namespace
}  // namespace anyorder

int main(int argc, char** argv) {
  int64_t steps = 0;
  const std::string option = argc == 5 ? argv[4] : "";
  const bool is_known =
      option.empty() || option == "--forward-only" || option == "--batches" || option == "--bf16";
  if (argc < 4 || argc > 5 || !is_known || !absl::SimpleAtoi(argv[2], &steps) || steps < 1) {
    std::fprintf(stderr,
                 "usage: parity_dump RUN_DIR STEPS OUTPUT [--forward-only | --batches | --bf16]\n");
    return 64;
  }
  return anyorder::ReportAndExitStatus("parity_dump",
                                       anyorder::DumpRun(argv[1], steps, argv[3], option));
}
