#include "launcher/inference/text_model.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/digest.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/train/run/config_file.h"
#include "core/train/run/run_directory.h"
#include "core/train/state/resume.h"
#include "data/dataset/dataset_index.h"
#include "data/dataset/shard_format.h"
#include "launcher/huggingface/saved_step.h"
#include "launcher/inference/run_backend.h"
#include "launcher/process/private_files.h"
#include "launcher/start/imported_run.h"

namespace anyorder::launcher {
namespace {

absl::Status OtherTokenizer(const std::string& path) {
  return FailedPrecondition("the run learns from tokens of '", path,
                            "', and this command encodes text with anyorder's own vocabularies "
                            "alone (",
                            data::kTokenizerFile,
                            "); export the run and use it with its tokenizer in Python");
}

struct VocabularyFile {
  std::string path;
  std::string letter_case;
};

// Where the run's vocabulary is: named by the user, beside imported weights, or in the dataset that
// it trains on.
absl::StatusOr<VocabularyFile> FindVocabulary(const TextModelOptions& options,
                                              const RunConfig& config) {
  VocabularyFile vocabulary;
  const ImportedRun imported(options.run_dir);
  std::error_code ignored;
  if (!options.vocab.empty()) {
    vocabulary.path = options.vocab;
  } else if (imported.exists() && std::filesystem::exists(imported.vocabulary, ignored)) {
    vocabulary.path = imported.vocabulary;
    vocabulary.letter_case = imported.letter_case();
  } else if (imported.exists() && !imported.tokenizer().empty()) {
    return OtherTokenizer(imported.tokenizer());
  } else {
    ANYORDER_ASSIGN_OR_RETURN(const data::DatasetIndex index,
                              ReadTrainingData(config.data.shards, "the vocabulary of the run",
                                               "give its spiece.model with --vocab"));
    if (index.tokenizer.file != data::kTokenizerFile)
      return OtherTokenizer(absl::StrCat(config.data.shards, "/", index.tokenizer.file));
    vocabulary.path = absl::StrCat(config.data.shards, "/", index.tokenizer.file);
    const auto found = index.settings.find("case");
    if (found != index.settings.end()) vocabulary.letter_case = found->second;
  }
  if (!options.letter_case.empty()) vocabulary.letter_case = options.letter_case;
  if (vocabulary.letter_case.empty()) vocabulary.letter_case = "cased";
  return vocabulary;
}

absl::StatusOr<RunVocabulary> LoadVocabulary(const TrainMetadata& saved,
                                             const VocabularyFile& file) {
  ANYORDER_ASSIGN_OR_RETURN(const std::string model, ReadWholeFile(file.path));
  const std::string digest = DigestOf(model).Hex();
  if (digest != saved.tokenizer_digest) {
    return FailedPrecondition("'", file.path, "' is vocabulary ", digest,
                              ", but the run was trained with ", saved.tokenizer_digest,
                              "; give the spiece.model of its training data with --vocab");
  }
  return RunVocabulary::Make(file.path, file.letter_case, model);
}

}  // namespace

void AddTextModelOptions(CLI::App* command, TextModelOptions& options) {
  AddStep(command, options.step, "", "--step,--checkpoint");
  AddRawWeights(command, options.raw_weights);
  AddPath(command, "--vocab", options.vocab, "spiece.model (default: the run's)",
          PathUse::kReadFile);
  AddChoice(command, "--case", options.letter_case, {"cased", "uncased"},
            "letter case of the text (default: as the run's text was prepared)");
  AddCount(command, "--threads", options.threads, "CPU threads (default: all cores)", 1, 4096);
  AddDeviceOption(command, &options.device);
}

CLI::Option* AddTokenStateOptions(CLI::App* command, TokenStateOptions& options) {
  AddCount(command, "--batch-size", options.batch_size, "texts computed at once", 1, 4096)
      ->capture_default_str();
  return AddCount(command, "--max-length", options.max_slots,
                  "tokens of a text that are read, special ones included; longer texts are cut "
                  "(default: as in training)",
                  1, int64_t{1} << 20);
}

absl::StatusOr<RunConfig> LoadConfigOfRun(const std::string& run_dir) {
  ANYORDER_RETURN_IF_ERROR(CheckIsRun(run_dir));
  ANYORDER_ASSIGN_OR_RETURN(const RunConfig config,
                            LoadRunConfig(RunDirectory(run_dir).config, {}));
  if (config.run.is_private) KeepFilesPrivate();
  return config;
}

absl::StatusOr<TextModel> OpenTextModel(const TextModelOptions& options, const RunConfig& config) {
  ANYORDER_ASSIGN_OR_RETURN(ckpt::Checkpoint checkpoint,
                            OpenSavedStep(options.run_dir, options.step));
  TextModel model{.checkpoint = std::move(checkpoint), .config = config};
  ANYORDER_ASSIGN_OR_RETURN(TrainMetadata saved, ParseMetadata(model.checkpoint.metadata_json()));
  ANYORDER_RETURN_IF_ERROR(AcceptRecordedSchedule(options.run_dir, config, &saved));
  ANYORDER_RETURN_IF_ERROR(CheckFitsConfig(saved, config));
  ANYORDER_ASSIGN_OR_RETURN(const VocabularyFile vocabulary, FindVocabulary(options, config));
  ANYORDER_ASSIGN_OR_RETURN(model.vocabulary, LoadVocabulary(saved, vocabulary));
  ANYORDER_ASSIGN_OR_RETURN(
      model.backend, MakeRunBackend(options.run_dir, config, options.device, options.threads));
  const ParameterLayout layout(config.model, model.vocabulary.size());
  LogWeights(model.checkpoint, options.weights());
  ANYORDER_ASSIGN_OR_RETURN(model.weights, LoadWeights(model.checkpoint, config, layout,
                                                       *model.backend, options.weights()));
  return model;
}

absl::StatusOr<std::string> NetworkName(const ckpt::Checkpoint& checkpoint, WeightChoice choice) {
  ANYORDER_ASSIGN_OR_RETURN(std::string name, checkpoint.StateDigest());
  if (choice == WeightChoice::kRaw && HasAverage(checkpoint)) name += " raw";
  return name;
}

absl::StatusOr<int32_t> FindPiece(const RunVocabulary& vocabulary, const char* piece) {
  for (size_t id = 0; id < vocabulary.pieces().size(); ++id)
    if (vocabulary.pieces()[id].text == piece) return static_cast<int32_t>(id);
  return FailedPrecondition("'", vocabulary.path(), "' has no piece ", piece,
                            "; give the run's own with --vocab");
}

absl::StatusOr<VocabularyIds> FindSpecialPieces(const RunVocabulary& vocabulary) {
  VocabularyIds ids;
  ids.size = vocabulary.size();
  ANYORDER_ASSIGN_OR_RETURN(ids.classifier, FindPiece(vocabulary, "<cls>"));
  ANYORDER_ASSIGN_OR_RETURN(ids.separator, FindPiece(vocabulary, "<sep>"));
  ANYORDER_ASSIGN_OR_RETURN(ids.mask, FindPiece(vocabulary, "<mask>"));
  return ids;
}

}  // namespace anyorder::launcher
