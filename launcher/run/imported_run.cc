#include "launcher/run/imported_run.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "core/base/json_members.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "data/dataset/shard_format.h"

namespace anyorder::launcher {

ImportedRun::ImportedRun(const std::string& run_dir)
    : directory(absl::StrCat(run_dir, "/import")),
      config(absl::StrCat(directory, "/config.json")),
      originals(absl::StrCat(directory, "/originals.safetensors")),
      vocabulary(absl::StrCat(run_dir, "/spiece.model")) {}

bool ImportedRun::exists() const { return IsFile(config); }

bool ImportedRun::has_vocabulary() const { return IsFile(vocabulary); }

std::string ImportedRun::tokenizer() const {
  const std::string other = JoinPath(directory, data::kHuggingFaceFile);
  if (has_vocabulary()) return vocabulary;
  return IsFile(other) ? other : "";
}

std::string ImportedRun::TokenizerOption() const {
  return has_vocabulary() ? absl::StrCat("--vocab ", vocabulary)
                          : absl::StrCat("--tokenizer ", directory);
}

std::string ImportedRun::WithoutVocabulary() const {
  return absl::StrCat(
      "the weights came without a SentencePiece vocabulary (spiece.model) and without a "
      "tokenizer.json, and `anyorder prep` knows no other; the run can be exported, inspected and "
      "measured in PyTorch, but "
      "has no dataset to train on");
}

std::string ImportedRun::source() const {
  const nlohmann::json json =
      TryParseJson(ReadFileInside(directory, "config.json", kMaxTableBytes).value_or(""));
  std::string name;
  MemberReader{json}("_name_or_path", name);
  return name;
}

ImportedRun ImportOfExport(const std::string& run_dir, const RunConfig& config) {
  const ImportedRun own(run_dir);
  if (own.exists() || !config.lora.is_on()) return own;
  // train.init_from is one of that run's checkpoints or, as a run that was moved may be named, the
  // run itself.
  const ImportedRun base(config.train.init_from);
  if (base.exists()) return base;
  const std::filesystem::path checkpoint(NamedPath(config.train.init_from));
  return ImportedRun(checkpoint.parent_path().parent_path().string());
}

std::string ImportedRun::letter_case() const {
  const nlohmann::json json =
      TryParseJson(ReadFileInside(directory, "tokenizer_config.json", kMaxTableBytes).value_or(""));
  const auto* const lowers = FindMember(json, "do_lower_case", &nlohmann::json::is_boolean);
  if (lowers == nullptr) return "";
  return lowers->get<bool>() ? "uncased" : "cased";
}

absl::Status CopyIfThere(const std::string& from, const std::string& to, const std::string& name) {
  const absl::StatusOr<std::string> bytes = ReadFileInside(from, name, kMaxTableBytes);
  if (absl::IsNotFound(bytes.status())) return absl::OkStatus();
  RETURN_IF_ERROR(bytes.status());
  if (absl::EndsWith(name, ".json"))
    RETURN_IF_ERROR(Annotate(ParseJsonObject(*bytes).status(), JoinPath(from, name)));
  return to.empty() ? absl::OkStatus() : WriteFileAtomically(JoinPath(to, name), *bytes);
}

absl::Status CopyKeptFiles(const std::string& from, const std::string& to) {
  for (const char* name :
       {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.json",
        "vocab.txt", "vocab.json", "merges.txt", "vocab.pkl", "tokenizer.model",
        "chat_template.jinja", "chat_template.json", "generation_config.json"})
    RETURN_IF_ERROR(CopyIfThere(from, to, name));
  // The code of models that transformers lacks; config.json's `auto_map` names it.
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(from, error)) {
    if (entry.path().extension() == ".py")
      RETURN_IF_ERROR(CopyIfThere(from, to, entry.path().filename().string()));
  }
  return absl::OkStatus();
}

absl::Status CheckFirstStart(const std::string& run_dir, const RunConfig& imported,
                             const RunConfig& now, const data::DatasetIndex& dataset) {
  RETURN_IF_ERROR(Annotate(CheckSameFunction(imported, now), run_dir));
  const ImportedRun run(run_dir);
  const std::string tokenizer = run.tokenizer();
  if (tokenizer.empty()) return FailedPrecondition("'", run_dir, "': ", run.WithoutVocabulary());
  ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(tokenizer, kMaxTableBytes));
  const std::string digest = DigestOf(bytes).Hex();
  const std::string known = run.letter_case();
  const auto prepared = dataset.settings.find("case");
  const bool is_known_case =
      known.empty() || prepared == dataset.settings.end() || prepared->second == known;
  std::string difference;
  // A mask, or rows, may be declared besides what the tokenizer's file has.
  if (digest != dataset.tokenizer_digest && digest != dataset.tokenizer.digest) {
    difference = absl::StrCat("was made with tokenizer ", dataset.tokenizer_digest,
                              " but the imported weights belong to ", tokenizer, ", ", digest);
  } else if (!is_known_case) {
    difference = absl::StrCat("is ", prepared->second, " but the imported weights are ", known,
                              " (do_lower_case in ", run.directory, "/tokenizer_config.json)");
  }
  if (difference.empty()) return absl::OkStatus();
  return FailedPrecondition("dataset '", now.data.shards, "' ", difference,
                            "; make it again: anyorder prep ", run.TokenizerOption(),
                            known.empty() || !run.has_vocabulary() ? "" : " --case " + known);
}

}  // namespace anyorder::launcher
