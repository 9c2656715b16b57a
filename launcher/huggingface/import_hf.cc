#include "launcher/huggingface/import_hf.h"

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "core/base/digest.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/network/tensors/parameters.h"
#include "core/train/run/run_directory.h"
#include "core/train/state/resume.h"
#include "launcher/huggingface/hf_config.h"
#include "launcher/huggingface/hf_weights.h"
#include "launcher/huggingface/spiece_file.h"
#include "launcher/process/new_directory.h"
#include "launcher/start/first_checkpoint.h"
#include "launcher/start/imported_run.h"
#include "launcher/start/requested_config.h"
#include "launcher/start/run_identity.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;

// Everything that was read and found good before anything is written.
struct Import {
  std::string input;
  std::string config_text;
  std::string vocabulary;  // bytes of spiece.model
  HfConfig model;
  RunConfig config;
  std::vector<std::string> left_out;
  bool draws_head = false;  // the run has a next-sentence head, the weights have none
};

// Small steps from weights that are good already: users who went on at a pretraining rate reported
// models that got worse. Adam starts without history, so that its first steps need both warm-up and
// bias correction.
RunConfig ContinuedPretrainingDefaults(const ModelConfig& model) {
  RunConfig config;
  config.model = model;
  config.optimizer.learning_rate = 2e-5;
  config.optimizer.warmup_steps = 1000;
  config.optimizer.bias_correction = true;
  config.train.steps = 20000;
  config.train.global_batch_size = 32;
  config.train.micro_batch_size = 2;
  config.checkpoint.every = 500;
  config.data.shards = "shards";
  return config;
}

absl::StatusOr<std::string> ReadInput(const std::string& directory, const std::string& name,
                                      absl::string_view remedy) {
  const std::string path = (fs::path(directory) / name).string();
  absl::StatusOr<std::string> text = ReadWholeFile(path);
  if (!absl::IsNotFound(text.status())) return text;
  return absl::FailedPreconditionError(absl::StrCat("'", path, "' is missing; ", remedy));
}

absl::Status CheckInput(const std::string& input) {
  if (input.empty()) return absl::InvalidArgumentError("--input is empty; name a directory");
  std::error_code error;
  if (fs::is_directory(input, error)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--input '", input, "' is not a directory; name the one that save_pretrained wrote"));
}

// InvalidArgument naming both values where the user's [model] is not that of the weights.
absl::Status CheckContradictions(const ImportOptions& options, const HfConfig& model,
                                 const RunConfig& config) {
  RunConfig expected;
  expected.model = model.model;
  expected.objective = config.objective;  // a head may be added
  // "gelu" may mean either, and the user may say which.
  if (model.gelu_is_open && config.model.activation == kernels::Activation::kGeluErf)
    expected.model.activation = kernels::Activation::kGeluErf;
  const std::vector<std::string> theirs = FunctionLines(expected);
  const std::vector<std::string> ours = FunctionLines(config);
  for (size_t i = 0; i < ours.size(); ++i) {
    if (ours[i] == theirs[i]) continue;
    const std::vector<std::string> key = absl::StrSplit(theirs[i], absl::ByAnyChar(". "));
    const absl::string_view hf_name = HfNameOf(key[1]);
    return absl::InvalidArgumentError(absl::StrCat(
        options.config.empty() ? "--set" : absl::StrCat("'", options.config, "' or --set"),
        " says ", ours[i], " but the weights of '", options.input, "' have ", theirs[i],
        hf_name.empty() ? "" : absl::StrCat(" (config.json: ", hf_name, ")"),
        "; leave the key out"));
  }
  return absl::OkStatus();
}

absl::StatusOr<RunConfig> ResolveConfig(const ImportOptions& options, const HfConfig& model) {
  ANYORDER_ASSIGN_OR_RETURN(RunConfig config,
                            RequestedConfig(options.config, options.overrides,
                                            ContinuedPretrainingDefaults(model.model)));
  ANYORDER_RETURN_IF_ERROR(CheckContradictions(options, model, config));
  ANYORDER_RETURN_IF_ERROR(Annotate(config.Validate(), "configuration of the imported run"));
  MakeDirectoriesAbsolute(config);
  return config;
}

absl::Status ReadVocabulary(Import& import) {
  ANYORDER_ASSIGN_OR_RETURN(
      import.vocabulary,
      ReadInput(import.input, "spiece.model",
                "copy it from the model that these weights were trained from: text can only be "
                "prepared with the SentencePiece model itself"));
  const std::string path = (fs::path(import.input) / "spiece.model").string();
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<VocabularyPiece> pieces,
                            ParsePieces(import.vocabulary, path));
  ANYORDER_RETURN_IF_ERROR(CheckXlnetPieces(pieces, path));
  if (static_cast<int64_t>(pieces.size()) == import.model.vocab_size) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "'", path, "' has ", pieces.size(), " pieces but config.json says 'vocab_size' ",
      import.model.vocab_size, "; use the spiece.model that the model was trained with"));
}

TrainMetadata MetadataOf(const Import& import) {
  TrainMetadata metadata;
  metadata.world_size = 1;
  metadata.tokenizer_digest = DigestOf(import.vocabulary).Hex();
  metadata.config_text = import.config.ToText();
  return metadata;
}

// Of the parameters that the files have to hold.
ParameterLayout StoredLayout(const Import& import) {
  ModelConfig model = import.config.model;
  if (import.draws_head) model.next_sentence_head = false;
  return ParameterLayout(model, import.model.vocab_size);
}

// Weights of a language model may go on with a fresh next-sentence head, as for any new task; half
// a head, one of other classes or one that sums up otherwise is refused.
absl::Status CheckWeights(const HfWeights& weights, Import& import) {
  const bool wants_head = import.config.model.next_sentence_head;
  const bool has_head = weights.HasNextSentenceHead();
  import.draws_head = wants_head && !has_head;
  const absl::Status checked = weights.Check(StoredLayout(import), import.left_out);
  if (!wants_head || !has_head) return checked;
  constexpr char kWithout[] =
      "; or leave out objective.next_sentence, which needs them for its two classes";
  if (checked.ok() && !import.model.other_summary.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "'", import.input, "/config.json': ", import.model.other_summary,
        ": sequence_summary and logits_proj belong to another head; remove them", kWithout));
  }
  const bool is_of_head = absl::StrContains(checked.message(), "sequence_summary.") ||
                          absl::StrContains(checked.message(), "logits_proj.");
  if (!is_of_head) return checked;
  return absl::FailedPreconditionError(absl::StrCat(checked.message(), kWithout));
}

absl::Status WriteCheckpoint(const Import& import, const HfWeights& weights,
                             const ParameterLayout& layout, const RunDirectory& paths,
                             const std::string& run_id) {
  const int64_t elements = layout.num_elements();
  const auto master = std::make_unique_for_overwrite<float[]>(elements);
  const ParameterLayout stored = StoredLayout(import);
  ANYORDER_RETURN_IF_ERROR(weights.Read(stored, master.get()));
  // What a run from scratch would begin with: the head stands at the end of the flat space.
  InitializeParameters(layout, import.config.model, static_cast<uint64_t>(import.config.train.seed),
                       stored.num_elements(), elements, master.get() + stored.num_elements());
  return SaveFirstCheckpoint(paths, run_id, layout, master.get(), MetadataOf(import));
}

absl::Status WriteFiles(const Import& import, const RunDirectory& paths) {
  const ImportedRun imported(paths.root);
  ANYORDER_RETURN_IF_ERROR(FileSystem::Posix()->MakeDirectory(imported.directory));
  ANYORDER_RETURN_IF_ERROR(WriteFileAtomically(imported.config, import.config_text));
  for (const std::string& name : KeptFiles()) {
    const absl::StatusOr<std::string> text =
        ReadWholeFile((fs::path(import.input) / name).string());
    if (absl::IsNotFound(text.status())) continue;
    ANYORDER_RETURN_IF_ERROR(text.status());
    ANYORDER_RETURN_IF_ERROR(
        WriteFileAtomically(absl::StrCat(imported.directory, "/", name), *text));
  }
  ANYORDER_RETURN_IF_ERROR(WriteFileAtomically(imported.vocabulary, import.vocabulary));
  return WriteFileAtomically(paths.config, import.config.ToText());
}

void PrintSummary(const Import& import, const ParameterLayout& layout, const std::string& run_dir) {
  const ImportedRun run(run_dir);
  absl::PrintF("imported %d parameters in %d layers from %s to %s\n", layout.num_elements(),
               import.config.model.num_layers, import.input, run_dir);
  if (import.model.gelu_is_open) {
    absl::PrintF(
        "note: config.json says \"gelu\"; taken as %s (model.activation). Released XLNets were "
        "trained with the tanh approximation; \"gelu_erf\" is the exact one\n",
        import.config.model.activation == kernels::Activation::kGeluErf ? "the exact GELU"
                                                                        : "its tanh approximation");
  }
  if (import.draws_head) {
    absl::PrintF("note: the next-sentence head is randomly initialised (train.seed): %s has none\n",
                 import.input);
  }
  if (!import.left_out.empty()) {
    absl::PrintF("note: left out, because pretraining does not use it: %s\n",
                 absl::StrJoin(import.left_out, ", "));
  }
  absl::PrintF(
      "next: anyorder prep --input TEXT... --vocab %s%s --output %s\n"
      "      anyorder launch --run-dir %s --ranks 2\n",
      run.vocabulary, run.letter_case() == "uncased" ? " --case uncased" : "",
      import.config.data.shards, run_dir);
}

}  // namespace

absl::Status ImportHuggingFace(const ImportOptions& options) {
  ANYORDER_RETURN_IF_ERROR(CheckInput(options.input));
  ANYORDER_RETURN_IF_ERROR(
      RefuseUnlessAbsentOrEmpty(fs::path(options.output).lexically_normal(), "--output"));
  Import import;
  import.input = options.input;
  ANYORDER_ASSIGN_OR_RETURN(
      import.config_text,
      ReadInput(options.input, "config.json", "name the directory that save_pretrained wrote"));
  ANYORDER_ASSIGN_OR_RETURN(
      import.model,
      ParseHfConfig(import.config_text, (fs::path(options.input) / "config.json").string()));
  ANYORDER_ASSIGN_OR_RETURN(import.config, ResolveConfig(options, import.model));
  ANYORDER_ASSIGN_OR_RETURN(const HfWeights weights, HfWeights::Open(options.input));
  const ParameterLayout layout(import.config.model, import.model.vocab_size);
  ANYORDER_RETURN_IF_ERROR(CheckWeights(weights, import));
  ANYORDER_RETURN_IF_ERROR(ReadVocabulary(import));

  ANYORDER_ASSIGN_OR_RETURN(NewDirectory directory,
                            NewDirectory::Create(options.output, "--output"));
  const RunDirectory paths(directory.path().string());
  ANYORDER_ASSIGN_OR_RETURN(const RunIdentity identity, NextIdentity(paths));
  ANYORDER_RETURN_IF_ERROR(WriteFiles(import, paths));
  ANYORDER_RETURN_IF_ERROR(WriteCheckpoint(import, weights, layout, paths, identity.run_id));
  ANYORDER_RETURN_IF_ERROR(RecordImport(paths, identity.run_id, import.input));
  ANYORDER_RETURN_IF_ERROR(directory.Publish());
  PrintSummary(import, layout, directory.output().string());
  return absl::OkStatus();
}

}  // namespace anyorder::launcher
