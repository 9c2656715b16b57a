// What a run directory made by `anyorder import` has in addition: the vocabulary, and the files of
// the model that its weights came from. They stay with the run, so that an export can give back
// what it does not know.

#pragma once

#include <string>

#include "absl/status/status.h"

#include "core/train/run/run_config.h"
#include "data/dataset/dataset_index.h"

namespace anyorder::launcher {

struct ImportedRun {
  explicit ImportedRun(const std::string& run_dir);

  // Whether the run directory is that of an imported run.
  bool exists() const;
  // "cased" or "uncased", as `anyorder prep --case` has it: what tokenizer_config.json says of the
  // text that the weights know. "" if it says nothing.
  std::string letter_case() const;

  // Whether `vocabulary` is there. Models whose tokenizer is none of SentencePiece's come without.
  bool has_vocabulary() const;
  // The file that data of the run must be made with: `vocabulary`, or tokenizer.json in
  // `directory`. "" if both are absent.
  std::string tokenizer() const;
  // The option of `anyorder prep` that names it: "--vocab PATH" or "--tokenizer PATH".
  std::string TokenizerOption() const;
  // Where the model came from, as its config.json says ("_name_or_path"); "" if it does not.
  std::string source() const;
  // What that means, where it is so.
  std::string WithoutVocabulary() const;

  std::string directory;   // run-dir/import: small files of the model as they were
  std::string config;      // run-dir/import/config.json
  std::string originals;   // run-dir/import/originals.safetensors (originals.h); may be absent
  std::string vocabulary;  // run-dir/spiece.model
};

// Whose files an export of the run gives back: its own or, of a run with adapters, those of the run
// that they were trained beside. May not exist.
ImportedRun ImportOfExport(const std::string& run_dir, const RunConfig& config);

// Copies `name`, which may be absent: then nothing is made. Errors: those of ReadFileInside;
// DataLoss for one that ends in .json and is no JSON object.
absl::Status CopyIfThere(const std::string& from, const std::string& to, const std::string& name);
// Copies, from a directory into another, a model's files besides config.json, weights and
// vocabulary, which are kept and exported again as they are. Each may be absent. With `to` "" it
// only checks that it can read them.
absl::Status CopyKeptFiles(const std::string& from, const std::string& to);

// Whether a run that has only been imported may start so: any settings that leave the model's
// function as it is, any dataset of its vocabulary and letter case. Errors: InvalidArgument for
// another model, FailedPrecondition for another dataset.
absl::Status CheckFirstStart(const std::string& run_dir, const RunConfig& imported,
                             const RunConfig& now, const data::DatasetIndex& dataset);

}  // namespace anyorder::launcher
