#include "launcher/huggingface/import_run.h"

#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "ckpt/reader.h"
#include "core/base/file_system.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/network/weight_transfer.h"
#include "core/train/run/config_file.h"
#include "core/train/run/run_directory.h"
#include "core/train/state/resume.h"
#include "core/train/state/saved_weights.h"
#include "launcher/huggingface/saved_step.h"
#include "launcher/process/new_directory.h"
#include "launcher/start/first_checkpoint.h"
#include "launcher/start/imported_run.h"
#include "launcher/start/requested_config.h"
#include "launcher/start/run_identity.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;

constexpr char kWordEmbedding[] = "transformer.word_embedding.weight";

struct Source {
  RunConfig config;
  TrainMetadata metadata;
  std::vector<ParameterInfo> parameters;
  int64_t vocab_size = 0;
};

// The checkpoint's own table: which parameters there are, and where.
absl::Status ReadParameters(const ckpt::Checkpoint& checkpoint, Source& source) {
  ANYORDER_ASSIGN_OR_RETURN(source.parameters, ReadSavedParameters(checkpoint));
  for (const ParameterInfo& info : source.parameters) {
    if (info.name == kWordEmbedding && info.shape.rank() == 2) source.vocab_size = info.shape[0];
  }
  if (source.vocab_size > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(checkpoint.directory(), " has no ", kWordEmbedding,
                                                 ": such models cannot be imported"));
}

absl::StatusOr<RunConfig> ResolveConfig(const ImportRunOptions& options, const RunConfig& source) {
  ANYORDER_ASSIGN_OR_RETURN(RunConfig config,
                            RequestedConfig(options.config, options.overrides, source));
  ANYORDER_RETURN_IF_ERROR(Annotate(config.Validate(), "configuration of the new run"));
  MakeDirectoriesAbsolute(config);
  return config;
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

absl::Status WriteFiles(const std::string& input, const RunConfig& config,
                        const RunDirectory& paths) {
  // A vocabulary that came with imported weights goes with them.
  const absl::StatusOr<std::string> vocabulary = ReadWholeFile(ImportedRun(input).vocabulary);
  if (vocabulary.ok()) {
    ANYORDER_RETURN_IF_ERROR(WriteFileAtomically(ImportedRun(paths.root).vocabulary, *vocabulary));
  } else if (!absl::IsNotFound(vocabulary.status())) {
    return vocabulary.status();
  }
  return WriteFileAtomically(paths.config, config.ToText());
}

void PrintSummary(const ImportRunOptions& options, const Source& source, const TransferPlan& plan) {
  absl::PrintF("imported the weights of step %d of %s into %s\n", source.metadata.step,
               options.input, options.output);
  if (plan.positions_after > plan.positions_before) {
    absl::PrintF("note: positions %d to %d are %s\n", plan.positions_before,
                 plan.positions_after - 1,
                 options.positions == "copy" ? "repeated copies of the earlier ones"
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

  const ParameterLayout layout(config.model, source.vocab_size);
  ANYORDER_ASSIGN_OR_RETURN(
      const TransferPlan plan,
      PlanTransfer(source.parameters, layout,
                   options.positions == "random" ? NewPositions::kRandom : NewPositions::kCopy));
  const int64_t elements = layout.num_elements();
  const auto master = std::make_unique_for_overwrite<float[]>(elements);
  InitializeParameters(layout, config.model, static_cast<uint64_t>(config.train.seed), 0, elements,
                       master.get());
  ANYORDER_RETURN_IF_ERROR(ReadTransferred(checkpoint, plan, 0, elements, master.get()));

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
      RecordImport(paths, identity.run_id,
                   absl::StrCat(fs::absolute(options.input).lexically_normal().string(), " step ",
                                source.metadata.step)));
  ANYORDER_RETURN_IF_ERROR(directory.Publish());
  PrintSummary(options, source, plan);
  return absl::OkStatus();
}

}  // namespace anyorder::launcher
