// `anyorder export`: a checkpoint as files for other programs, either a model of Hugging Face's
// transformers or, of any run, named tensors and a description of the network; and
// `anyorder import`: a run whose first checkpoint is weights from elsewhere. With --format hf they
// are a model directory of Hugging Face; with --format run another run's checkpoint, for continued
// pretraining with other settings, other text of the same vocabulary, longer text and wider
// windows: a table of learned positions grows, global slots get projections of their own
// (core/network/weight_transfer.h).

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "core/network/weight_transfer.h"
#include "core/train/run/run_config.h"
#include "launcher/huggingface/weight_files.h"

namespace anyorder::launcher {

struct HfConfig;

enum class ExportFormat {
  kHuggingFace,  // a model of a family of families/hf_family.h
  kSafetensors,  // every network, under its own names: model_description.h
  kPeft,         // the adapters of a run that has some
};
constexpr auto SpellingsOf(ExportFormat) { return std::array{"hf", "safetensors", "peft"}; }

struct ExportOptions {
  std::string run_dir;
  int64_t step = -1;  // -1: the newest good checkpoint
  std::string output;
  ExportFormat format = ExportFormat::kHuggingFace;
  WeightFileOptions files;
  bool raw_weights = false;  // not the average of a run that keeps one

  WeightChoice weights() const { return raw_weights ? WeightChoice::kRaw : WeightChoice::kAverage; }
};

// Writes the weights (weight_files.h), config.json and the tokenizer's files: spiece.model,
// tokenizer.json, tokenizer_config.json, special_tokens_map.json. The directory appears complete or
// not at all. Needs memory for a few pieces of the weights, whatever the model's size.
// Errors: AlreadyExists if `output` is not empty; NotFound for a step without checkpoint; DataLoss;
// of kHuggingFace also FailedPrecondition for a network that is no model of a family, or if the
// dataset is not the run's. kSafetensors then leaves the tokenizer out, and says so.
absl::Status ExportModel(const ExportOptions& options);

struct ImportOptions {
  std::string input;   // config.json, weights as safetensors, spiece.model if there is one
  std::string output;  // the run directory to make
  std::string config;  // TOML, or empty: settings for continued pretraining
  std::vector<std::string> overrides;  // section.key=value
};

// What an import trains unless told otherwise: [model] as the weights have it, and settings that go
// with it and with the objective and length of text that `options` ask for.
RunConfig ContinuedTrainingDefaults(const ImportOptions& options, const HfConfig& model);

// Makes a run directory at step 0: the weights in fp32, without moments and memory. `anyorder
// launch` trains it with any number of ranks; what it may still choose then is said in README.md,
// "Import". The directory appears complete or not at all. Needs memory for a few pieces of the
// weights, whatever the model's size. Prints each part of the work with its size, what was
// imported, what was left out, and the commands that go on.
// Errors, each naming file and what to do: InvalidArgument and AlreadyExists for the command line
// and a configuration that contradicts the model; DataLoss and FailedPrecondition for the input
// (hf_model.h, data/prep/tokenizer.h); I/O.
absl::Status ImportHuggingFace(const ImportOptions& options);

struct ImportRunOptions : ImportOptions {  // input: the other run's directory
  int64_t step = -1;                       // -1: its newest good checkpoint
  NewPositions positions = NewPositions::kCopy;
};

// Makes one like ImportHuggingFace. Its configuration is the other run's, or that of
// options.config, with the overrides; training goes by it from the first step on. The other run is
// not changed.
// Errors: InvalidArgument for a model that cannot begin with these weights; NotFound and DataLoss
// of the checkpoint; I/O.
absl::Status ImportRun(const ImportRunOptions& options);

}  // namespace anyorder::launcher
