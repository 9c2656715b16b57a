#include "launcher/start/imported_run.h"

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "ckpt/commit.h"
#include "core/base/check.h"
#include "core/base/digest.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/train/run/ledger.h"

namespace anyorder::launcher {

ImportedRun::ImportedRun(const std::string& run_dir)
    : directory(absl::StrCat(run_dir, "/import")),
      config(absl::StrCat(directory, "/config.json")),
      vocabulary(absl::StrCat(run_dir, "/spiece.model")) {}

bool ImportedRun::exists() const {
  std::error_code error;
  return std::filesystem::is_regular_file(config, error);
}

std::string ImportedRun::letter_case() const {
  const absl::StatusOr<std::string> text =
      ReadWholeFile(absl::StrCat(directory, "/tokenizer_config.json"));
  if (!text.ok()) return "";
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("do_lower_case") || !json["do_lower_case"].is_boolean())
    return "";
  return json["do_lower_case"].get<bool>() ? "uncased" : "cased";
}

const std::vector<std::string>& KeptFiles() {
  static const auto* const kFiles =
      new std::vector<std::string>{"tokenizer_config.json", "special_tokens_map.json",
                                   "added_tokens.json", "tokenizer.json", "generation_config.json"};
  return *kFiles;
}

absl::Status CheckFirstStart(const std::string& run_dir, const RunConfig& imported,
                             const RunConfig& now, const data::DatasetIndex& dataset) {
  ANYORDER_RETURN_IF_ERROR(Annotate(CheckSameFunction(imported, now), run_dir));
  const ImportedRun run(run_dir);
  ANYORDER_ASSIGN_OR_RETURN(const Digest128 digest, DigestOfFile(run.vocabulary));
  const std::string known = run.letter_case();
  const auto prepared = dataset.settings.find("case");
  const bool is_known_case =
      known.empty() || prepared == dataset.settings.end() || prepared->second == known;
  std::string difference;
  if (digest.Hex() != dataset.tokenizer_digest) {
    difference =
        absl::StrCat("was made with tokenizer ", dataset.tokenizer_digest,
                     " but the imported weights belong to ", run.vocabulary, ", ", digest.Hex());
  } else if (!is_known_case) {
    difference = absl::StrCat("is ", prepared->second, " but the imported weights are ", known,
                              " (do_lower_case in ", run.directory, "/tokenizer_config.json)");
  }
  if (difference.empty()) return absl::OkStatus();
  return FailedPrecondition("dataset '", now.data.shards, "' ", difference,
                            "; make it again: anyorder prep --vocab ", run.vocabulary,
                            known.empty() ? "" : " --case ", known);
}

absl::Status SaveFirstCheckpoint(const RunDirectory& paths, const std::string& run_id,
                                 const ParameterLayout& layout, const float* master,
                                 const TrainMetadata& metadata) {
  ANYORDER_CHECK(metadata.is_imported()) << "weights that have a run already";
  const int64_t elements = layout.num_elements();
  // Fresh memory that is only read stays one page of zeros, so that this costs nothing for a large
  // model.
  const std::unique_ptr<float, decltype(&std::free)> zeros(
      static_cast<float*>(std::calloc(static_cast<size_t>(elements), sizeof(float))), &std::free);
  if (zeros == nullptr)
    return ResourceExhausted("no memory for ", elements, " zeros; import on a machine with more");
  std::vector<ckpt::TensorRange> ranges;
  for (const auto& [name, values] : {std::pair<const char*, const float*>{"master", master},
                                     {"adam_m", zeros.get()},
                                     {"adam_v", zeros.get()}}) {
    ranges.push_back({name, DType::kFloat32, Shape{elements}, 0, elements, values});
  }
  // Before the first start, which is attempt 1.
  const ckpt::SaveIdentity id = {run_id, 0, 0, 0, 1, 1};
  return ckpt::SaveDirectly(paths.root, id, ranges, SerializeMetadata(metadata, layout));
}

absl::Status RecordImport(const RunDirectory& paths, const std::string& run_id,
                          const std::string& source) {
  ANYORDER_ASSIGN_OR_RETURN(Ledger ledger, Ledger::Open(paths.ledger));
  ANYORDER_RETURN_IF_ERROR(ledger.Append(ledger::Created{run_id, ""}));
  ANYORDER_RETURN_IF_ERROR(ledger.Append(ledger::Imported{source}));
  // From here on the run has a checkpoint to lose: a start that does not find it fails, rather than
  // begin at random weights.
  ledger::Commit commit;
  commit.step = 0;
  commit.generation = 0;
  return ledger.Append(commit);
}

}  // namespace anyorder::launcher
