// `anyorder inspect`: what a checkpoint, a run directory, a dataset or exported weights hold.

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "ckpt/layout.h"
#include "ckpt/reader.h"
#include "core/base/json_members.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/train/state/resume.h"
#include "core/train/state/saved_weights.h"
#include "data/dataset/dataset.h"
#include "launcher/huggingface/model_description.h"
#include "launcher/inspect/ledger_report.h"
#include "launcher/inspect/status_report.h"
#include "launcher/process/command_line.h"

namespace anyorder::launcher {
namespace {

using Json = nlohmann::ordered_json;

struct InspectOptions {
  std::string path;
  bool verify = false;  // read every byte and compare checksums
  bool json = false;
  bool ledger = false;  // of a run: ledger_report.h
  std::string data;     // with ledger: another place of the dataset
};

absl::Status WithNextStep(const absl::Status& status) {
  if (!absl::IsDataLoss(status)) return status;
  return DataLoss(status.message(), "; rename or remove this checkpoint, and older ones are used");
}

// Both want every byte, the digest one after the other: together they read the disk once.
absl::StatusOr<std::string> VerifyAndDigest(const ckpt::Checkpoint& checkpoint, bool verify) {
  absl::Status verified;
  std::thread verifying;
  if (verify) verifying = std::thread([&] { verified = checkpoint.Verify(); });
  absl::StatusOr<std::string> digest = checkpoint.StateDigest();
  if (verify) verifying.join();
  // It names all that is bad, the digest only where it stopped.
  RETURN_IF_ERROR(WithNextStep(verified));
  RETURN_IF_ERROR(WithNextStep(digest.status()));
  return digest;
}

// Which parameters lie where in the flat tensors master, adam_m and adam_v (ckpt/FORMAT.md).
void AddParameters(const ckpt::Checkpoint& checkpoint, Json& json) {
  const auto parameters = ReadSavedParameters(checkpoint);
  if (!parameters.ok()) return;  // another writer's
  json["parameters"] = Json::array();
  for (const ParameterInfo& info : *parameters) {
    json["parameters"].push_back(
        {{"name", info.name}, {"shape", info.shape.ToString()}, {"offset", info.offset}});
  }
}

absl::StatusOr<Json> DescribeCheckpoint(const InspectOptions& options) {
  const absl::StatusOr<ckpt::Checkpoint> opened = ckpt::Checkpoint::Open(options.path);
  RETURN_IF_ERROR(WithNextStep(opened.status()));
  const ckpt::Checkpoint& checkpoint = *opened;
  ASSIGN_OR_RETURN(const std::string digest, VerifyAndDigest(checkpoint, options.verify));
  Json json = {{"kind", "checkpoint"},
               {"path", options.path},
               {"step", checkpoint.step()},
               {"world_size", checkpoint.world_size()},
               {"state_digest", digest},
               {"run_id", checkpoint.run_id()},
               {"generation", checkpoint.generation()},
               {"bytes", checkpoint.num_bytes()},
               {"verified", options.verify}};
  json["tensors"] = Json::array();
  for (const ckpt::TensorInfo& info : checkpoint.tensors()) {
    const absl::string_view dtype = Name(info.dtype);
    json["tensors"].push_back({{"name", info.name},
                               {"dtype", std::string(dtype.data(), dtype.size())},
                               {"shape", info.shape.ToString()}});
  }
  AddParameters(checkpoint, json);
  // Checkpoints of other writers have no such metadata.
  const absl::StatusOr<TrainMetadata> metadata = ParseMetadata(checkpoint.metadata_json());
  if (metadata.ok()) {
    json["config_digest"] = metadata->config_digest;
    json["dataset_digest"] = metadata->dataset_digest;
    json["tokenizer_digest"] = metadata->tokenizer_digest;
    json["skipped_steps"] = metadata->skipped_steps;
    // Behind it come skipped steps up to this checkpoint's.
    json["trained_step"] = metadata->step - metadata->anomaly.skipped_in_a_row;
    if (metadata->base.exists()) json["adapter_base"] = metadata->base.directory;
  }
  return json;
}

absl::StatusOr<Json> DescribeDataset(const InspectOptions& options) {
  data::DatasetOptions open;
  open.verify = options.verify;
  ASSIGN_OR_RETURN(const std::unique_ptr<data::Dataset> dataset,
                   data::Dataset::Open(options.path, open));
  if (!options.verify) RETURN_IF_ERROR(dataset->CheckShards());
  const data::DatasetIndex& index = dataset->index();
  Json json = {{"kind", "dataset"},
               {"path", options.path},
               {"tokens", index.num_tokens},
               {"sentences", index.num_sentences},
               {"documents", index.num_documents},
               {"vocab_size", index.vocab_size},
               {"shards", index.num_shards()},
               {"dataset_digest", index.dataset_digest},
               {"tokenizer_digest", index.tokenizer_digest},
               {"corpus_digest", index.corpus_digest},
               {"verified", options.verify}};
  for (const auto& [key, value] : index.settings) json["settings"][key] = value;
  for (const auto& [key, value] : index.counts) json["counts"][key] = value;
  return json;
}

// Reads every byte of all checkpoints of the run; how many there are.
absl::StatusOr<int64_t> VerifyCheckpoints(const std::string& run_dir) {
  ASSIGN_OR_RETURN(const auto checkpoints, ckpt::ListCheckpoints(run_dir));
  for (const ckpt::CheckpointInfo& info : checkpoints) {
    const absl::StatusOr<ckpt::Checkpoint> checkpoint = ckpt::Checkpoint::Open(info.directory);
    RETURN_IF_ERROR(WithNextStep(checkpoint.status()));
    RETURN_IF_ERROR(WithNextStep(checkpoint->Verify()));
  }
  return std::ssize(checkpoints);
}

absl::Status InspectRun(const InspectOptions& options) {
  std::optional<int64_t> verified;
  if (options.verify) {
    ASSIGN_OR_RETURN(verified, VerifyCheckpoints(options.path));
  }
  if (options.ledger)
    return PrintLedgerReport({options.path, options.data, options.json, verified});
  StatusOptions status{options.path, options.json};
  status.verified_checkpoints = verified;
  return PrintStatus(status);
}

// Of lists of tensors their length: --json has them whole.
void PrintForPeople(const Json& json) {
  for (const auto& [key, value] : json.items()) {
    std::string text = value.is_string() ? value.get<std::string>() : DumpJson(value);
    if (value.is_array() && !value.empty() && value[0].is_object())
      text = absl::StrCat(value.size(), " (--json lists them)");
    std::printf("%-18s %s\n", key.c_str(), text.c_str());
  }
}

bool Has(const std::string& directory, const char* name) {
  return IsThere(absl::StrCat(directory, "/", name));
}

// Prints to stdout. InvalidArgument if `path` is none of the four; DataLoss if it is damaged.
absl::Status Inspect(const InspectOptions& options) {
  if (options.ledger) return InspectRun(options);
  if (!options.data.empty()) return InvalidArgument("--data is only used with --ledger");
  absl::StatusOr<Json> json =
      InvalidArgument("'", options.path, "' holds no checkpoint (", ckpt::kManifestName,
                      "), dataset (dataset.json), run (config.toml) or exported model "
                      "(config.json); "
                      "name the directory of one");
  if (Has(options.path, ckpt::kManifestName)) {
    json = DescribeCheckpoint(options);
  } else if (Has(options.path, "dataset.json")) {
    json = DescribeDataset(options);
  } else if (Has(options.path, "config.toml")) {
    return InspectRun(options);
  } else if (IsModelDirectory(options.path)) {
    json = DescribeModelDirectory(options.path, options.verify, options.json);
  } else if (ckpt::ParseStepName(PlaceName(options.path)) && Has(options.path, ".")) {
    // It was a checkpoint: what is named must be good, and is not silently something else.
    json = WithNextStep(DataLoss("checkpoint '", options.path, "' has no ", ckpt::kManifestName));
  }
  RETURN_IF_ERROR(json.status());
  if (options.json) {
    std::puts(DumpJson(*json, 2).c_str());
  } else {
    PrintForPeople(*json);
  }
  return absl::OkStatus();
}

}  // namespace

Subcommand DeclareInspect(CLI::App& front) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* command =
      AddCommand(front, "inspect", "Print what a checkpoint, run, dataset or exported model holds.",
                 {"anyorder inspect runs/a/checkpoints/step-000000200 --verify",
                  "anyorder inspect runs/a --verify --ledger", "anyorder inspect shards --json",
                  "anyorder inspect exported"});
  AddPath(command, "path", options->path, "directory of a checkpoint, run, dataset or export")
      ->required();
  command->add_flag("--verify", options->verify,
                    "read all data and compare checksums; of a run, all checkpoints");
  command->add_flag("--json", options->json, "print one JSON object");
  command->add_flag(
      "--ledger", options->ledger,
      "run: verify that each sample was used as planned, and print where the time went");
  AddPath(command, "--data", options->data, "--ledger: dataset, if it was moved",
          PathUse::kReadDirectory);
  return {command, [options] { return Report(Inspect(*options)); }};
}

}  // namespace anyorder::launcher
