#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"

#include "ckpt/commit.h"
#include "ckpt/reader.h"
#include "core/base/counted.h"
#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "core/base/log.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/network/tensors/parameters.h"
#include "core/network/weight_transfer.h"
#include "core/train/run/config_file.h"
#include "core/train/run/ledger.h"
#include "core/train/run/run_directory.h"
#include "core/train/state/resume.h"
#include "core/train/state/saved_weights.h"
#include "data/dataset/shard_format.h"
#include "data/prep/tokenizer.h"
#include "data/prep/vocabulary.h"
#include "launcher/huggingface/exchange.h"
#include "launcher/huggingface/families/hf_family.h"
#include "launcher/huggingface/hf_model.h"
#include "launcher/huggingface/originals.h"
#include "launcher/process/child_process.h"
#include "launcher/process/command_line.h"
#include "launcher/process/new_files.h"
#include "launcher/run/imported_run.h"
#include "launcher/run/run_identity.h"
#include "launcher/run/saved_step.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;

// What is asked for: `defaults`, or, where --config names a file, that file, which is complete but
// for [model] and [data], those of `defaults`; then --set. Validated, with absolute directories.
// Errors: those of parsing and I/O; InvalidArgument, which names --set where that is at fault.
absl::StatusOr<RunConfig> RequestedConfig(const ImportOptions& options, const RunConfig& defaults) {
  RunConfig config = defaults;
  std::string origin = "configuration of the imported run";
  if (!options.config.empty()) {
    RunConfig base = RunConfig::ForNewRun();
    base.model = defaults.model;
    base.data = defaults.data;
    ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(options.config, kMaxSettingsBytes));
    ASSIGN_OR_RETURN(config, ParseRunConfig(text, options.config, base));
    origin = options.config;
  }
  RETURN_IF_ERROR(ApplyOverrides(options.overrides, origin, config));
  RETURN_IF_ERROR(MakeDirectoriesAbsolute(config));
  return config;
}

// Writes a piece of the weights, in fp32.
using ReadPiece = std::function<absl::Status(const FlatPiece& piece)>;

// Saves what `read` gives, piece by piece, without moments or memory, and verifies it. Errors:
// those of `read` and ckpt::SaveDirectly.
absl::Status SaveFirstCheckpoint(const RunDirectory& paths, const std::string& run_id,
                                 const ParameterLayout& layout, const ReadPiece& read,
                                 const TrainMetadata& metadata) {
  const int64_t elements = layout.num_elements();
  ckpt::TensorRange master{kMasterTensor, DType::kFloat32, Shape{elements}, 0, elements};
  master.read = [&read](int64_t begin, int64_t end, void* out) {
    return read({begin, end, static_cast<float*>(out)});
  };
  master.contents = ParameterTable(layout);
  // Before the first start, which is attempt 1.
  const ckpt::SaveIdentity id = {run_id, 0, 0, 0, 1, 1};
  return ckpt::SaveDirectly(paths.root, id, {master}, SerializeMetadata(metadata, layout));
}

// Makes the run directory, complete or not at all, with these weights as its first checkpoint and
// what else `write_files` puts there. Returns where it is.
absl::StatusOr<std::string> MakeRun(
    const ImportOptions& options, const RunConfig& config, const std::string& tokenizer_digest,
    const ParameterLayout& layout, const ReadPiece& read, const std::string& source,
    const std::function<absl::Status(const RunDirectory&)>& write_files) {
  if (config.run.is_private) KeepFilesPrivate();
  ASSIGN_OR_RETURN(NewDirectory directory, NewDirectory::Create(options.output, "--output"));
  const RunDirectory paths(directory.path().string());
  ASSIGN_OR_RETURN(const RunIdentity identity, NextIdentity(paths));
  RETURN_IF_ERROR(write_files(paths));
  RETURN_IF_ERROR(WriteFileAtomically(paths.config, config.ToText()));
  TrainMetadata metadata;  // without digests: is_imported()
  metadata.world_size = 1;
  metadata.tokenizer_digest = tokenizer_digest;
  metadata.config_text = config.ToText();
  RETURN_IF_ERROR(SaveFirstCheckpoint(paths, identity.run_id, layout, read, metadata));
  ASSIGN_OR_RETURN(Ledger ledger, Ledger::Open(paths.ledger));
  RETURN_IF_ERROR(ledger.Append(ledger::Created{identity.run_id, ""}));
  RETURN_IF_ERROR(ledger.Append(ledger::Imported{source}));
  // From here on the run has a checkpoint to lose: a start that does not find it fails, rather than
  // begin at random weights.
  RETURN_IF_ERROR(ledger.Append(ledger::Commit{.step = 0, .generation = 0}));
  RETURN_IF_ERROR(directory.Publish());
  return directory.output().string();
}

// Everything that was read and found good before anything is written.
struct Import {
  std::string input;
  std::string config_text;
  std::string vocabulary;  // bytes of spiece.model
  HfConfig model;
  RunConfig config;
  HfWeights::Findings findings;
};

absl::StatusOr<std::string> ReadInput(const std::string& directory, const std::string& name,
                                      absl::string_view remedy) {
  absl::StatusOr<std::string> text = ReadFileInside(directory, name, kMaxTableBytes);
  if (!absl::IsNotFound(text.status())) return text;
  return FailedPrecondition("'", (fs::path(directory) / name).string(), "' is missing; ", remedy);
}

absl::Status CheckInput(const std::string& input) {
  if (input.empty()) return InvalidArgument("--input is empty; name a directory");
  if (!IsDirectory(input)) {
    return InvalidArgument("--input '", input,
                           "' is not a directory; name the one that save_pretrained wrote");
  }
  if (CheckIsRun(input).ok()) {
    return InvalidArgument("--input '", input,
                           "' is a run directory; use --format run to begin with its weights");
  }
  if (!IsThere(JoinPath(input, "config.json")) &&
      IsThere(JoinPath(input, "xlnet_model.ckpt.index"))) {
    return FailedPrecondition("--input '", input,
                              "' is a released XLNet in TensorFlow's format; convert it first: "
                              "python3 ",
                              ProgramDirectory(), "/convert_tf.py ", input);
  }
  return absl::OkStatus();
}

absl::Status CheckRunInput(const std::string& input) {
  const absl::Status status = CheckIsRun(input);
  if (status.ok() || !IsFile(JoinPath(input, "config.json"))) return status;
  return InvalidArgument("--input '", input,
                         "' is a Hugging Face model directory, not a run; use --format hf");
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
  if (model.ffn_residual_is_open) expected.model.ffn_residual = config.model.ffn_residual;
  if (model.model.segments == Segments::kLearned)  // a table can be longer (bert_like.cc)
    expected.model.num_segments = std::max(model.model.num_segments, config.model.num_segments);
  const std::vector<std::string> theirs = FunctionLines(expected);
  const std::vector<std::string> ours = FunctionLines(config);
  for (size_t i = 0; i < ours.size(); ++i) {
    if (ours[i] == theirs[i]) continue;
    const std::vector<std::string> key = absl::StrSplit(theirs[i], absl::ByAnyChar(". "));
    const std::string hf_name = model.family->NameOf(key[1]);
    return InvalidArgument(
        options.config.empty() ? "--set" : absl::StrCat("'", options.config, "' or --set"),
        " says ", ours[i], " but the weights of '", options.input, "' have ", theirs[i],
        hf_name.empty() ? "" : absl::StrCat(" (config.json: ", hf_name, ")"),
        "; leave the key out");
  }
  return absl::OkStatus();
}

absl::StatusOr<RunConfig> ConfigOfWeights(const ImportOptions& options, const HfConfig& model) {
  ImportOptions asked = options;
  if (!options.config.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(options.config, kMaxSettingsBytes));
    ASSIGN_OR_RETURN(const RunConfig file, ParseRunConfig(text, options.config));
    asked.overrides.insert(asked.overrides.begin(), "objective.name=" + file.objective.name);
  }
  ASSIGN_OR_RETURN(RunConfig config,
                   RequestedConfig(options, ContinuedTrainingDefaults(asked, model)));
  RETURN_IF_ERROR(CheckContradictions(options, model, config));
  return config;
}

// Leaves `import.vocabulary` empty where there is none and the family needs none.
absl::Status ReadVocabulary(Import& import) {
  const std::string path = (fs::path(import.input) / "spiece.model").string();
  absl::StatusOr<std::string> vocabulary =
      ReadInput(import.input, "spiece.model",
                "copy it from the model that these weights were trained from: text can only be "
                "prepared with the SentencePiece model itself");
  const bool may_lack = !import.model.family->names().has_xlnet_tokenizer;
  if (may_lack && !vocabulary.ok() && !IsThere(path)) return absl::OkStatus();
  RETURN_IF_ERROR(vocabulary.status());
  import.vocabulary = *std::move(vocabulary);
  constexpr char kAdvice[] = "use the spiece.model that the model was trained with";
  ASSIGN_OR_RETURN(const data::Tokenizer tokenizer,
                   data::Tokenizer::Load(import.vocabulary, path, kAdvice));
  const auto size = static_cast<int64_t>(tokenizer.vocab_size());
  if (size == import.model.vocab_size) return absl::OkStatus();
  return FailedPrecondition("'", path, "' has ", size, " pieces but config.json says 'vocab_size' ",
                            import.model.vocab_size, "; ", kAdvice);
}

// Names what data of the model must be made with; "" where nothing is known of it.
absl::StatusOr<std::string> TokenizerDigestOf(const Import& import) {
  if (!import.vocabulary.empty()) {
    const std::string path = (fs::path(import.input) / "spiece.model").string();
    ASSIGN_OR_RETURN(const auto vocabulary, data::ReadGivenVocabulary(path, "", {}));
    return vocabulary->Digest();
  }
  const absl::StatusOr<std::string> bytes =
      ReadFileInside(import.input, data::kHuggingFaceFile, kMaxTableBytes);
  if (absl::IsNotFound(bytes.status())) return std::string();
  RETURN_IF_ERROR(bytes.status());
  return DigestOf(*bytes).Hex();
}

// What the files should have.
TensorTable ExpectedTensors(const HfWeights& weights, const Import& import,
                            const ParameterLayout& layout) {
  const HfFamily& family = *import.model.family;
  const HfFamily::Names names = family.names();
  TensorTable tensors = family.Tensors(import.config.model, layout);
  family.FitTensors(import.model, tensors);
  if (!names.takes_bare || !weights.IsBare(family)) return tensors;
  for (FileTensor& tensor : tensors)
    tensor.name = std::string(absl::StripPrefix(tensor.name, names.prefix));
  return tensors;
}

// Weights of a language model may go on with fresh heads, as for any new task; half a head, one of
// other classes or one that sums up otherwise is refused.
absl::Status CheckWeights(const HfWeights& weights, const TensorTable& tensors, Import& import) {
  ASSIGN_OR_RETURN(import.findings, weights.Check(*import.model.family, tensors));
  const std::vector<const HfHead*>& taken = import.findings.taken;
  const auto head = std::find_if(taken.begin(), taken.end(),
                                 [](const HfHead* one) { return one->has_summary(); });
  if (head == taken.end() || import.model.other_summary.empty()) return absl::OkStatus();
  return FailedPrecondition("'", import.input, "/config.json': ", import.model.other_summary,
                            ": the summary belongs to another head; remove its tensors",
                            (*head)->remedy);
}

// A piece of all weights; parameters that the files lack are what a run from scratch would begin
// with.
absl::Status ReadWeights(const Import& import, const HfWeights& weights, const TensorTable& tensors,
                         const ParameterLayout& layout, const FlatPiece& piece) {
  const auto seed = static_cast<uint64_t>(import.config.train.seed);
  const std::set<int64_t> held = weights.OffsetsIn(tensors);
  for (const ParameterInfo& parameter : layout.parameters()) {
    const auto block = held.lower_bound(parameter.offset);
    const int64_t begin = std::max(piece.begin, parameter.offset);
    const int64_t end = std::min(piece.end, parameter.end());
    if (begin >= end || (block != held.end() && *block < parameter.end())) continue;
    InitializeParameters(layout, import.config.model, seed, begin, end,
                         piece.values + (begin - piece.begin));
  }
  RETURN_IF_ERROR(weights.Read(tensors, piece));
  const HfFamily& family = *import.model.family;
  const bool is_bare = weights.IsBare(family);
  const auto read = [&](const std::string& name) {
    return weights.Values(is_bare ? absl::StripPrefix(name, family.names().prefix) : name);
  };
  return family.Fold(import.model, layout, read, piece);
}

// "62h", "41m": more digits would be pretence.
std::string RoughDuration(double seconds) {
  for (const absl::Duration unit : {absl::Hours(1), absl::Minutes(1)}) {
    const absl::Duration whole = absl::Trunc(absl::Seconds(seconds), unit);
    if (whole >= 2 * unit) return absl::FormatDuration(whole);
  }
  return absl::FormatDuration(absl::Ceil(absl::Seconds(seconds), absl::Seconds(1)));
}

// What the run will train unless its settings change, and what it cannot become.
void PrintPlan(const HfFamily& family, const RunConfig& config, int64_t num_parameters) {
  const TrainConfig& train = config.train;
  const int64_t tokens = train.steps * train.global_batch_size * config.sampling.seq_len;
  // Forward and backward: two operations a parameter and token, and four (Kaplan et al. 2020,
  // section 2.1). Attention and a second stream come on top.
  const double operations = 6.0 * static_cast<double>(num_parameters) * static_cast<double>(tokens);
  absl::PrintF(
      "training: %s of %s of %d tokens (--set train.steps=N), %d tokens in all; about %s at 1 "
      "TFLOP/s, and `anyorder status` tells the measured pace\n",
      Counted(train.steps, "step"), Counted(train.global_batch_size, "sequence"),
      config.sampling.seq_len, tokens, RoughDuration(operations / 1e12));
  const absl::Status checked = CheckFamily(family, config);
  if (checked.ok()) return;
  LogWarning(
      absl::StrCat("`anyorder export --format hf` will not be available: ", checked.message()));
}

void PrintWriting(int64_t num_parameters) {
  const double bytes = sizeof(float) * static_cast<double>(num_parameters);
  absl::PrintF("writing the first checkpoint, %.1f MB: weights in fp32\n", bytes / 1e6);
  std::fflush(stdout);
}

absl::Status WriteFilesOfModel(const Import& import, const HfWeights& weights,
                               const TensorTable& tensors, const RunDirectory& paths) {
  const ImportedRun imported(paths.root);
  RETURN_IF_ERROR(MakeDirectories(imported.directory));
  RETURN_IF_ERROR(WriteFileAtomically(imported.config, import.config_text));
  RETURN_IF_ERROR(CopyKeptFiles(import.input, imported.directory));
  if (import.model.family->names().keeps_storage)
    RETURN_IF_ERROR(KeepOriginals(weights, tensors, imported.originals));
  if (import.vocabulary.empty()) return absl::OkStatus();
  return WriteFileAtomically(imported.vocabulary, import.vocabulary);
}

// The commands that go on.
void PrintNext(const Import& import, const std::string& run_dir) {
  const ImportedRun run(run_dir);
  if (run.tokenizer().empty()) {
    absl::PrintF("note: %s\n", run.WithoutVocabulary());
    return;
  }
  std::error_code ignored;
  const std::string& shards = import.config.data.shards;
  // An example in place of a directory that holds something already, which is not overwritten.
  const bool is_free = !fs::exists(shards, ignored) || fs::is_empty(shards, ignored);
  const std::string output = is_free ? shards : "DATASET";
  absl::PrintF(
      "next: anyorder prep %s... %s --output %s\n"
      "      anyorder launch --run-dir %s --ranks 2%s\n",
      TraitsOf(import.config).sample_kind == SampleKind::kExamples ? "--examples FILE"
                                                                   : "--input TEXT",
      run.TokenizerOption(), output, run_dir, is_free ? "" : " --set data.shards=DATASET");
}

void PrintSummary(const Import& import, const ParameterLayout& layout, const std::string& run_dir) {
  absl::PrintF("imported %d parameters in %d layers from %s to %s\n", layout.num_elements(),
               import.config.model.num_layers, import.input, run_dir);
  if (import.model.gelu_is_open) {
    absl::PrintF(
        "note: config.json says \"gelu\"; taken as %s (model.activation). Released XLNets were "
        "trained with the tanh approximation; \"gelu_erf\" is the exact one\n",
        import.config.model.activation == kernels::Activation::kGeluErf ? "the exact GELU"
                                                                        : "its tanh approximation");
  }
  if (import.model.ffn_residual_is_open &&
      import.config.model.ffn_residual == FfnResidual::kNormed) {
    absl::PrintF(
        "note: feed-forward layers are added to their normalised input, as in A3's released code "
        "(model.ffn_residual is \"normed\"; \"input\" is Llama's form)\n");
  }
  const int64_t types = import.model.model.num_segments, all = import.config.model.num_segments;
  if (all > types)
    absl::PrintF("note: %d of %d token types begin as copies of the weights' %d, in turn\n",
                 all - types, all, types);
  for (const HfHead* const head : import.findings.drawn) {
    absl::PrintF("note: the %s is randomly initialised (train.seed): %s has none\n", head->name,
                 import.input);
  }
  if (!import.findings.left_out.empty()) {
    absl::PrintF("note: left out, because pretraining does not use it: %s\n",
                 absl::StrJoin(import.findings.left_out, ", "));
  }
  PrintNext(import, run_dir);
}

// What may differ although it is part of the function: what PlanTransfer knows how to fill.
absl::Status CheckModels(const RunConfig& source, const RunConfig& config) {
  RunConfig alike = config;
  alike.model.max_positions = source.model.max_positions;
  alike.model.global_projections = source.model.global_projections;
  alike.objective.next_sentence = source.objective.next_sentence;
  alike.Resolve();
  return CheckSameFunction(source, alike);
}

void PrintSummary(const ImportRunOptions& options, int64_t step, const TransferPlan& plan) {
  absl::PrintF("imported the weights of step %d of %s into %s\n", step, options.input,
               options.output);
  if (plan.positions_after > plan.positions_before) {
    absl::PrintF("note: positions %s are %s\n",
                 RangeText(plan.positions_before, plan.positions_after - 1),
                 options.positions == NewPositions::kCopy ? "repeated copies of the earlier ones"
                                                          : "randomly initialised (train.seed)");
  }
  if (plan.projections_copied > 0)
    absl::PrintF("note: projections of global tokens are initialised with those of all others\n");
  if (!plan.initialised.empty()) {
    absl::PrintF("note: randomly initialised (train.seed): %s\n",
                 absl::StrJoin(plan.initialised, ", "));
  }
  if (!plan.left_out.empty())
    absl::PrintF("note: left out: %s\n", absl::StrJoin(plan.left_out, ", "));
  absl::PrintF("next: anyorder launch --run-dir %s --ranks 2\n", options.output);
}

}  // namespace

absl::Status ImportHuggingFace(const ImportOptions& options) {
  RETURN_IF_ERROR(CheckInput(options.input));
  RETURN_IF_ERROR(RefuseUnlessAbsentOrEmpty(options.output, "--output"));
  Import import;
  import.input = options.input;
  ASSIGN_OR_RETURN(import.config_text, ReadInput(options.input, "config.json",
                                                 "name the directory that save_pretrained wrote"));
  ASSIGN_OR_RETURN(import.model, ParseHfConfig(import.config_text,
                                               (fs::path(options.input) / "config.json").string()));
  ASSIGN_OR_RETURN(import.config, ConfigOfWeights(options, import.model));
  ASSIGN_OR_RETURN(const HfWeights weights, HfWeights::Open(options.input));
  const ParameterLayout layout(import.config.model, import.model.vocab_size);
  const TensorTable tensors = ExpectedTensors(weights, import, layout);
  RETURN_IF_ERROR(CheckWeights(weights, tensors, import));
  RETURN_IF_ERROR(ReadVocabulary(import));
  RETURN_IF_ERROR(CopyKeptFiles(import.input, /*to=*/""));

  const HfWeights::Totals totals = weights.totals();
  absl::PrintF("reading %d tensors, %.1f MB\n", totals.tensors,
               static_cast<double>(totals.bytes) / 1e6);
  PrintWriting(layout.num_elements());
  ASSIGN_OR_RETURN(const std::string digest, TokenizerDigestOf(import));
  const auto read = [&](const FlatPiece& piece) {
    return ReadWeights(import, weights, tensors, layout, piece);
  };
  const auto write_files = [&](const RunDirectory& paths) {
    return WriteFilesOfModel(import, weights, tensors, paths);
  };
  ASSIGN_OR_RETURN(const std::string run_dir, MakeRun(options, import.config, digest, layout, read,
                                                      import.input, write_files));
  PrintSummary(import, layout, run_dir);
  PrintPlan(VariantOfRun(*import.model.family, import.config), import.config,
            layout.num_elements());
  return absl::OkStatus();
}

absl::Status ImportRun(const ImportRunOptions& options) {
  RETURN_IF_ERROR(CheckRunInput(options.input));
  RETURN_IF_ERROR(RefuseUnlessAbsentOrEmpty(options.output, "--output"));
  ASSIGN_OR_RETURN(const RunConfig source, LoadRunConfig(RunDirectory(options.input).config, {}));
  ASSIGN_OR_RETURN(const RunConfig config, RequestedConfig(options, source));
  RETURN_IF_ERROR(CheckModels(source, config));
  ASSIGN_OR_RETURN(const ckpt::Checkpoint checkpoint, OpenSavedStep(options.input, options.step));
  ASSIGN_OR_RETURN(const TrainMetadata metadata, ParseMetadata(checkpoint.metadata_json()));
  ASSIGN_OR_RETURN(const WeightReader weights,
                   WeightReader::Open(checkpoint, WeightChoice::kAverage, source.train.init_from));
  const int64_t vocab_size = VocabSizeOf(weights.parameters());
  if (vocab_size == 0 || source.model.projects_clusters()) {
    return InvalidArgument(checkpoint.directory(), " has no transformer.word_embedding.weight",
                           ": such models cannot be imported");
  }
  const ParameterLayout layout(config.model, vocab_size);
  ASSIGN_OR_RETURN(const TransferPlan plan,
                   PlanTransfer(weights.parameters(), layout, options.positions));
  const int64_t elements = layout.num_elements();
  const auto read = [&](const FlatPiece& piece) {
    const auto& [begin, end, values] = piece;
    const auto seed = static_cast<uint64_t>(config.train.seed);
    InitializeParameters(layout, config.model, seed, begin, end, values);
    return ReadTransferred(weights, plan, begin, end, values);
  };
  PrintWriting(elements);
  RETURN_IF_ERROR(MakeRun(options, config, metadata.tokenizer_digest, layout, read,
                          absl::StrCat(fs::absolute(options.input).lexically_normal().string(),
                                       " step ", metadata.step),
                          // A vocabulary that came with imported weights goes with them.
                          [&options](const RunDirectory& paths) {
                            return CopyIfThere(options.input, paths.root, data::kTokenizerFile);
                          })
                      .status());
  PrintSummary(options, metadata.step, plan);
  PrintPlan(FamilyOfRun(config), config, elements);
  return absl::OkStatus();
}

Subcommand DeclareImport(CLI::App& front) {
  const auto options = std::make_shared<ImportRunOptions>();
  const auto format = std::make_shared<std::string>("hf");
  CLI::App* command = AddCommand(
      front, "import", "Create a run from pretrained weights.",
      {"anyorder import --input xlnet-base-cased --output runs/continued",
       "anyorder import --input bert-base-uncased --output runs/bert",
       "anyorder import --format run --input runs/a --output runs/b --set model.mem_len=512"});
  AddPath(command, "--input", options->input, "Hugging Face model directory, or run directory",
          PathUse::kReadDirectory)
      ->required();
  AddPath(command, "--output", options->output, "run directory to create; absent or empty",
          PathUse::kMakeDirectory)
      ->required();
  AddChoice(command, "--format", *format, {"hf", "run"},
            absl::StrCat("format of --input: hf is a Hugging Face model in safetensors (",
                         HfFamilyTypes(), "), run is another run's checkpoint"));
  AddPath(command, "--config", options->config,
          "TOML file (default: for hf, continued pretraining; for run, that run's configuration)",
          PathUse::kReadConfig);
  AddSettings(command, options->overrides);
  AddStep(command, options->step, "run: ");
  AddEnum(command, "--positions", options->positions,
          "run: rows that a longer table of learned positions adds: repeated copies of the old "
          "rows, or randomly initialised");
  return {command, [options, format, command] {
            if (*format == "run") return Report(ImportRun(*options));
            for (const char* const option : {"--step", "--positions"}) {
              if (command->count(option) == 0) continue;
              return Report(InvalidArgument(
                  option, " is not used with --format hf; leave it out, or use --format run"));
            }
            return Report(ImportHuggingFace(*options));
          }};
}

}  // namespace anyorder::launcher
