// A checkpoint of a run that reads text which is in no dataset, and the vocabulary that text is
// encoded with.

#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "core/config/sampling_config.h"
#include "core/train/evaluation/token_states.h"
#include "core/train/run/run_config.h"
#include "core/train/state/saved_weights.h"
#include "data/prep/cleaning.h"
#include "launcher/inference/run_vocabulary.h"
#include "launcher/inference/saved_model.h"
#include "launcher/process/command_line.h"

namespace anyorder::launcher {

struct TextModelOptions : SavedModelOptions {
  std::string vocab;                            // as data::ReadVocabulary takes it; "": the run's
  std::optional<data::LetterCase> letter_case;  // without: as the run's text was prepared
};
// --step, --raw-weights, --vocab, --case, --threads and --device.
void AddTextModelOptions(CLI::App* command, TextModelOptions& options);
// --max-length, which is returned, and --batch-size.
CLI::Option* AddTokenStateOptions(CLI::App* command, TokenStateOptions& options);

struct TextModel {
  ckpt::Checkpoint checkpoint;
  RunConfig config = {};
  RunVocabulary vocabulary = {};
  std::unique_ptr<kernels::Backend> backend = nullptr;
  SavedWeights weights = {};
};

// `config` is the run's. Errors: those of MakeRunBackend; those of data::ReadVocabulary and
// RunVocabulary::Make; FailedPrecondition for another vocabulary than the run's, if there is none,
// or it lacks a special token that the model reads; NotFound, DataLoss.
absl::StatusOr<TextModel> OpenTextModel(const TextModelOptions& options, const RunConfig& config);

// What names the states that the model computes: the checkpoint's state digest, and " raw" behind
// it where `choice` takes weights of which the checkpoint has an average, too.
absl::StatusOr<std::string> NetworkName(const ckpt::Checkpoint& checkpoint, WeightChoice choice);

// The ids of its special tokens; -1: there is none, and the model needs none.
VocabularyIds SpecialTokens(const RunVocabulary& vocabulary);

}  // namespace anyorder::launcher
