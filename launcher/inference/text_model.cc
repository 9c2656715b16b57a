#include "launcher/inference/text_model.h"

#include <utility>

#include "core/base/status.h"
#include "core/train/evaluation/task_data.h"
#include "core/train/state/resume.h"
#include "core/train/state/weight_reader.h"
#include "data/dataset/dataset_index.h"
#include "data/prep/vocabulary.h"
#include "launcher/run/imported_run.h"
#include "launcher/run/saved_step.h"

namespace anyorder::launcher {
namespace {

absl::StatusOr<data::DatasetVocabulary> ReadMatching(const std::string& path,
                                                     const TrainMetadata& saved, int64_t rows) {
  ASSIGN_OR_RETURN(data::DatasetVocabulary vocabulary,
                   data::ReadVocabularyOf(path, saved.tokenizer_digest));
  const std::string digest = vocabulary.Digest();
  if (digest == saved.tokenizer_digest) return vocabulary;
  // Data declare rows that a tokenizer.json does not name.
  const auto larger = data::ReadVocabulary(path, {.size = static_cast<uint64_t>(rows)});
  if (larger.ok() && larger->Digest() == saved.tokenizer_digest) return larger;
  return FailedPrecondition(
      "'", vocabulary.path, "' is vocabulary ", digest, ", but the run was trained with ",
      saved.tokenizer_digest,
      "; give its training data with --vocab; their tokenizer is enough if they declare no "
      "special tokens of their own");
}

// The run's vocabulary. The user names it; or it lies beside the imported weights of the run, or of
// the base of its adapters; or in the dataset that the run trains on.
absl::StatusOr<data::DatasetVocabulary> FindVocabulary(const TextModelOptions& options,
                                                       const RunConfig& config,
                                                       const TrainMetadata& saved, int64_t rows) {
  if (!options.vocab.empty()) return ReadMatching(options.vocab, saved, rows);
  const ImportedRun imported = ImportOfExport(options.run_dir, config);
  const std::string kept = imported.exists() ? imported.tokenizer() : "";
  if (!kept.empty()) {
    absl::StatusOr<data::DatasetVocabulary> own = ReadMatching(kept, saved, rows);
    if (own.ok() || saved.is_imported()) return own;
  }
  RETURN_IF_ERROR(ReadTrainingData(config.data.shards, "the vocabulary of the run",
                                   "give its tokenizer with --vocab")
                      .status());
  ASSIGN_OR_RETURN(data::DatasetVocabulary found, ReadMatching(config.data.shards, saved, rows));
  // The data may declare more, such as a mask, but only the directory of imported weights has the
  // model's chat template.
  const auto own = data::ReadVocabulary(kept, {});
  if (own.ok() && own->bytes == found.bytes) found.path = kept;
  return found;
}

// Whether the vocabulary has what the objective puts into sequences.
absl::Status CheckSpecialTokens(const RunConfig& config, const RunVocabulary& vocabulary) {
  const std::string name = LackingToken(config, vocabulary.ids());
  if (name.empty()) return absl::OkStatus();
  return FailedPrecondition("'", vocabulary.path(), "' has no <", name, "> token, which ",
                            config.objective.name, " reads; make a dataset that declares it with ",
                            "prep --", name, "-id N, and name that with --vocab");
}

absl::StatusOr<RunVocabulary> LoadVocabulary(const TextModelOptions& options,
                                             const RunConfig& config, const TrainMetadata& saved,
                                             const ckpt::Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(const WeightReader weights,
                   WeightReader::Open(checkpoint, options.weights(), config.train.init_from));
  // Released models have more than their tokenizer has tokens.
  const int64_t rows = VocabSizeOf(weights.parameters());
  ASSIGN_OR_RETURN(data::DatasetVocabulary found, FindVocabulary(options, config, saved, rows));
  if (found.is_hugging_face() && options.letter_case) {
    return absl::InvalidArgumentError(
        "--case is not for a tokenizer.json, which lower-cases by itself if it should; leave it "
        "out");
  }
  found.cleaning.letter_case = options.letter_case.value_or(found.cleaning.letter_case);
  ASSIGN_OR_RETURN(RunVocabulary vocabulary,
                   RunVocabulary::Make(found, found.is_hugging_face() ? rows : 0));
  RETURN_IF_ERROR(CheckSpecialTokens(config, vocabulary));
  return vocabulary;
}

}  // namespace

void AddTextModelOptions(CLI::App* command, TextModelOptions& options) {
  AddStep(command, options.step, "", "--step,--checkpoint");
  AddRawWeights(command, options.raw_weights);
  AddPath(command, "--vocab", options.vocab,
          "spiece.model, tokenizer.json or a dataset (default: the run's)", PathUse::kRead);
  AddEnum(command, "--case", options.letter_case,
          "letter case of the text (default: as the run's text was prepared)");
  AddCount(command, "--threads", options.threads, "CPU threads (default: all cores)", 1, 4096);
  AddDeviceOption(command, &options.device);
}

CLI::Option* AddTokenStateOptions(CLI::App* command, TokenStateOptions& options) {
  AddCount(command, "--batch-size", options.batch_size, "texts computed at once", 1, 4096);
  return AddCount(command, "--max-length", options.max_slots,
                  "tokens of a text that are read, special ones included; longer texts are cut "
                  "(default: as in training)",
                  1, int64_t{1} << 20);
}

absl::StatusOr<TextModel> OpenTextModel(const TextModelOptions& options, const RunConfig& config) {
  ASSIGN_OR_RETURN(ckpt::Checkpoint checkpoint, OpenSavedStep(options.run_dir, options.step));
  TextModel model{.checkpoint = std::move(checkpoint), .config = config};
  ASSIGN_OR_RETURN(TrainMetadata saved, ParseMetadata(model.checkpoint.metadata_json()));
  RETURN_IF_ERROR(AcceptRecordedSchedule(options.run_dir, config, &saved));
  RETURN_IF_ERROR(CheckFitsConfig(saved, config));
  ASSIGN_OR_RETURN(model.vocabulary, LoadVocabulary(options, config, saved, model.checkpoint));
  ASSIGN_OR_RETURN(model.backend, MakeRunBackend(options, config));
  const ParameterLayout layout(config.model, model.vocabulary.size());
  LogWeights(model.checkpoint, options.weights());
  ASSIGN_OR_RETURN(model.weights, LoadWeights(model.checkpoint, config, layout, *model.backend,
                                              options.weights()));
  return model;
}

absl::StatusOr<std::string> NetworkName(const ckpt::Checkpoint& checkpoint, WeightChoice choice) {
  ASSIGN_OR_RETURN(std::string name, checkpoint.StateDigest());
  if (choice == WeightChoice::kRaw && HasAverage(checkpoint)) name += " raw";
  return name;
}

VocabularyIds SpecialTokens(const RunVocabulary& vocabulary) {
  const data::VocabIds& ids = vocabulary.ids();
  return {.separator = ids.sep,
          .classifier = ids.cls,
          .mask = ids.mask,
          .size = vocabulary.size(),
          .begin = ids.bos,
          .end = ids.eos,
          .end_of_document = ids.eod};
}

}  // namespace anyorder::launcher
