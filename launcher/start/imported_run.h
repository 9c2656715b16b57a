// What a run directory made by `anyorder import` has in addition: the vocabulary, and the files of
// the model that its weights came from. They stay with the run, so that an export can give back
// what it does not know.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/network/tensors/parameters.h"
#include "core/train/run/run_config.h"
#include "core/train/run/run_directory.h"
#include "core/train/state/resume.h"
#include "data/dataset/dataset_index.h"

namespace anyorder::launcher {

struct ImportedRun {
  explicit ImportedRun(const std::string& run_dir);

  // Of an existing run directory.
  bool exists() const;
  // "cased" or "uncased", as `anyorder prep --case` has it: what tokenizer_config.json says of the
  // text that the weights know. "" if it says nothing.
  std::string letter_case() const;

  std::string directory;   // run-dir/import: small files of the model as they were
  std::string config;      // run-dir/import/config.json
  std::string vocabulary;  // run-dir/spiece.model
};

// Files of a model directory besides config.json, weights and vocabulary that are kept and exported
// again as they are. Each may be absent.
const std::vector<std::string>& KeptFiles();

// Whether a run that has only been imported may start so: any settings that leave the model's
// function as it is, any dataset of its vocabulary and letter case. Errors: InvalidArgument for
// another model, FailedPrecondition for another dataset.
absl::Status CheckFirstStart(const std::string& run_dir, const RunConfig& imported,
                             const RunConfig& now, const data::DatasetIndex& dataset);

// Saves `master` [layout.num_elements()], fp32, with Adam moments of zero and no memory, and
// verifies it. `metadata` has neither dataset nor configuration digest
// (TrainMetadata::is_imported).
// Errors: ResourceExhausted; those of ckpt::SaveDirectly.
absl::Status SaveFirstCheckpoint(const RunDirectory& paths, const std::string& run_id,
                                 const ParameterLayout& layout, const float* master,
                                 const TrainMetadata& metadata);

// A new ledger: created, imported from `source`, committed at step 0.
absl::Status RecordImport(const RunDirectory& paths, const std::string& run_id,
                          const std::string& source);

}  // namespace anyorder::launcher
