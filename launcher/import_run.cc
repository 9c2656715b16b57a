#include "launcher/import_run.h"

#include <nlohmann/json.hpp>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "ckpt/file_system.h"
#include "ckpt/reader.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/model/weight_transfer.h"
#include "core/train/config_file.h"
#include "core/train/resume.h"
#include "core/train/run_directory.h"
#include "launcher/first_checkpoint.h"
#include "launcher/imported_run.h"
#include "launcher/new_directory.h"
#include "launcher/run_identity.h"
#include "launcher/saved_step.h"
#include "launcher/start_request.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;

constexpr char kMaster[] = "master";
constexpr char kWordEmbedding[] = "transformer.word_embedding.weight";

struct Source {
  RunConfig config;
  TrainMetadata metadata;
  std::vector<ParameterInfo> parameters;
  int64_t num_elements = 0;
  int64_t vocab_size = 0;
};

absl::Status Unreadable(const ckpt::Checkpoint& checkpoint) {
  return absl::FailedPreconditionError(absl::StrCat(
      checkpoint.directory(),
      " has no table of parameters that can be read and fits its weights; name another --step"));
}

// Elements of the fp32 weights, 0 if there are none.
int64_t MasterElements(const ckpt::Checkpoint& checkpoint) {
  for (const ckpt::TensorInfo& info : checkpoint.tensors()) {
    if (info.name == kMaster && info.dtype == DType::kFloat32 && info.shape.rank() == 1)
      return info.shape.num_elements();
  }
  return 0;
}

// A shape of 1 to 3 dimensions whose elements `room` holds; nothing for anything else. REQUIRES: room >= 0.
std::optional<Shape> ParseShape(const nlohmann::json& written, int64_t room) {
  if (!written.is_array() || written.empty() || written.size() > 3) return std::nullopt;
  std::array<int64_t, 3> dims = {1, 1, 1};
  for (size_t i = 0; i < written.size(); ++i) {
    if (!written[i].is_number_unsigned()) return std::nullopt;
    const uint64_t dim = written[i].get<uint64_t>();
    // The room shrinks by what there is already, so no product can overflow.
    if (dim < 1 || dim > static_cast<uint64_t>(room)) return std::nullopt;
    dims[i] = static_cast<int64_t>(dim);
    room /= dims[i];
  }
  if (written.size() == 1) return Shape{dims[0]};
  if (written.size() == 2) return Shape{dims[0], dims[1]};
  return Shape{dims[0], dims[1], dims[2]};
}

// The checkpoint's own table: which parameters there are, and where. Together they are the whole of the fp32 weights.
absl::Status ReadParameters(const ckpt::Checkpoint& checkpoint, Source& source) {
  const auto json =
      nlohmann::json::parse(checkpoint.metadata_json(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("parameters") || !json["parameters"].is_array())
    return Unreadable(checkpoint);
  const int64_t num_elements = MasterElements(checkpoint);
  for (const auto& entry : json["parameters"]) {
    const bool is_whole = entry.is_object() && entry.contains("name") &&
                          entry["name"].is_string() && entry.contains("offset") &&
                          entry["offset"].is_number_unsigned() && entry.contains("shape");
    if (!is_whole) return Unreadable(checkpoint);
    const std::optional<Shape> shape =
        ParseShape(entry["shape"], num_elements - source.num_elements);
    if (!shape) return Unreadable(checkpoint);
    ParameterInfo info;
    info.name = entry["name"].get<std::string>();
    info.offset = entry["offset"].get<int64_t>();
    info.shape = *shape;
    if (info.offset != source.num_elements) return Unreadable(checkpoint);
    source.num_elements = info.end();
    if (info.name == kWordEmbedding && info.shape.rank() == 2) source.vocab_size = info.shape[0];
    source.parameters.push_back(std::move(info));
  }
  if (source.num_elements != num_elements) return Unreadable(checkpoint);
  if (source.vocab_size > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      checkpoint.directory(), " has no ", kWordEmbedding, ": such models cannot be imported"));
}

absl::StatusOr<RunConfig> ResolveConfig(const ImportRunOptions& options, const RunConfig& source) {
  RunConfig config = source;
  if (!options.config.empty()) {
    // A file of the user's own is complete, except for the model.
    RunConfig base;
    base.model = source.model;
    base.data = source.data;
    ANYORDER_RETURN_IF_ERROR(CheckConfigPath("--config", options.config));
    ANYORDER_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(options.config));
    ANYORDER_ASSIGN_OR_RETURN(config, ParseRunConfig(text, options.config, base));
  }
  for (const std::string& assignment : options.overrides)
    ANYORDER_RETURN_IF_ERROR(ApplyOverride(assignment, config));
  ANYORDER_RETURN_IF_ERROR(Annotate(config.Validate(), "configuration of the new run"));
  for (std::string* directory : {&config.data.shards, &config.eval.shards}) {
    if (directory->empty()) continue;
    std::error_code error;
    const fs::path absolute = fs::absolute(*directory, error);
    if (!error) *directory = absolute.lexically_normal().string();
  }
  return config;
}

// What may differ although it is part of the function: what TransferWeights knows how to fill.
absl::Status CheckModels(const RunConfig& source, const RunConfig& config) {
  RunConfig alike = config;
  alike.model.max_positions = source.model.max_positions;
  alike.model.global_projections = source.model.global_projections;
  alike.objective.next_sentence = source.objective.next_sentence;
  alike.Resolve();
  return CheckSameFunction(source, alike);
}

absl::Status WriteFiles(const std::string& input,
                        const RunConfig& config,
                        const RunDirectory& paths) {
  ckpt::FileSystem* const files = ckpt::FileSystem::Posix();
  // A vocabulary that came with imported weights goes with them.
  const absl::StatusOr<std::string> vocabulary = ReadWholeFile(ImportedRun(input).vocabulary);
  if (vocabulary.ok()) {
    ANYORDER_RETURN_IF_ERROR(
        ckpt::WriteSmallFileAtomically(files, ImportedRun(paths.root).vocabulary, *vocabulary));
  } else if (!absl::IsNotFound(vocabulary.status())) {
    return vocabulary.status();
  }
  return ckpt::WriteSmallFileAtomically(files, paths.config, config.ToText());
}

void PrintSummary(const ImportRunOptions& options,
                  const Source& source,
                  const TransferSummary& summary) {
  std::printf("imported the weights of step %lld of %s into %s\n",
              static_cast<long long>(source.metadata.step),
              options.input.c_str(),
              options.output.c_str());
  if (summary.positions_after > summary.positions_before) {
    std::printf("note: positions %lld to %lld are %s\n",
                static_cast<long long>(summary.positions_before),
                static_cast<long long>(summary.positions_after - 1),
                options.positions == "copy" ? "copies of the earlier ones, in turn"
                                            : "drawn at random (train.seed)");
  }
  if (summary.projections_copied > 0)
    std::printf("note: projections of global slots begin as those of all others\n");
  if (!summary.drawn.empty()) {
    std::printf("note: drawn at random (train.seed): %s\n",
                absl::StrJoin(summary.drawn, ", ").c_str());
  }
  if (!summary.left_out.empty())
    std::printf("note: left out: %s\n", absl::StrJoin(summary.left_out, ", ").c_str());
  std::printf("next: anyorder launch --run-dir %s --ranks 2\n", options.output.c_str());
}

}  // namespace

absl::Status ImportRun(const ImportRunOptions& options) {
  ANYORDER_RETURN_IF_ERROR(CheckIsRun(options.input));
  ANYORDER_RETURN_IF_ERROR(
      RefuseUnlessAbsentOrEmpty(fs::path(options.output).lexically_normal(), "--output"));
  Source source;
  ANYORDER_ASSIGN_OR_RETURN(source.config, LoadRunConfig(RunDirectory(options.input).config, {}));
  ANYORDER_ASSIGN_OR_RETURN(const RunConfig config, ResolveConfig(options, source.config));
  ANYORDER_RETURN_IF_ERROR(CheckModels(source.config, config));
  ANYORDER_ASSIGN_OR_RETURN(const ckpt::Checkpoint checkpoint,
                            OpenSavedStep(options.input, options.step));
  ANYORDER_ASSIGN_OR_RETURN(source.metadata, ParseMetadata(checkpoint.metadata_json()));
  ANYORDER_RETURN_IF_ERROR(ReadParameters(checkpoint, source));

  const auto old = std::make_unique_for_overwrite<float[]>(source.num_elements);
  ANYORDER_RETURN_IF_ERROR(checkpoint.Read(kMaster, 0, source.num_elements, old.get()));
  const ParameterLayout layout(config.model, source.vocab_size);
  const auto master = std::make_unique_for_overwrite<float[]>(layout.num_elements());
  TransferOptions transfer;
  transfer.positions = options.positions == "random" ? NewPositions::kRandom : NewPositions::kCopy;
  transfer.seed = static_cast<uint64_t>(config.train.seed);
  ANYORDER_ASSIGN_OR_RETURN(
      const TransferSummary summary,
      TransferWeights(source.parameters, old.get(), config.model, layout, transfer, master.get()));

  ANYORDER_ASSIGN_OR_RETURN(NewDirectory directory,
                            NewDirectory::Create(options.output, "--output"));
  const RunDirectory paths(directory.path().string());
  ANYORDER_ASSIGN_OR_RETURN(const RunIdentity identity, NextIdentity(paths));
  ANYORDER_RETURN_IF_ERROR(WriteFiles(options.input, config, paths));
  TrainMetadata metadata;
  metadata.world_size = 1;
  metadata.tokenizer_digest = source.metadata.tokenizer_digest;
  metadata.config_text = config.ToText();
  ANYORDER_RETURN_IF_ERROR(
      SaveFirstCheckpoint(paths, identity.run_id, layout, master.get(), metadata));
  ANYORDER_RETURN_IF_ERROR(
      RecordImport(paths,
                   identity.run_id,
                   absl::StrCat(fs::absolute(options.input).lexically_normal().string(),
                                " step ",
                                source.metadata.step)));
  ANYORDER_RETURN_IF_ERROR(directory.Publish());
  PrintSummary(options, source, summary);
  return absl::OkStatus();
}

}  // namespace anyorder::launcher
