#include "launcher/imported_run.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "data/digest.h"

namespace anyorder::launcher {

ImportedRun::ImportedRun(const std::string& run_dir)
    : directory(absl::StrCat(run_dir, "/import")),
      config(absl::StrCat(directory, "/config.json")),
      vocabulary(absl::StrCat(run_dir, "/spiece.model")) {}

bool ImportedRun::exists() const {
  std::error_code error;
  return std::filesystem::is_regular_file(config, error);
}

const std::vector<std::string>& KeptFiles() {
  static const auto* const kFiles = new std::vector<std::string>{"tokenizer_config.json",
                                                                 "special_tokens_map.json",
                                                                 "added_tokens.json",
                                                                 "tokenizer.json",
                                                                 "generation_config.json"};
  return *kFiles;
}

absl::Status CheckFirstStart(const std::string& run_dir,
                             const RunConfig& imported,
                             const RunConfig& now,
                             const data::DatasetIndex& dataset) {
  ANYORDER_RETURN_IF_ERROR(Annotate(CheckSameFunction(imported, now), run_dir));
  const std::string vocabulary = ImportedRun(run_dir).vocabulary;
  ANYORDER_ASSIGN_OR_RETURN(const data::Digest128 digest, data::DigestOfFile(vocabulary));
  if (digest.Hex() == dataset.tokenizer_digest) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("dataset '",
                                                    now.data.shards,
                                                    "' was made with tokenizer ",
                                                    dataset.tokenizer_digest,
                                                    " but the imported weights belong to ",
                                                    vocabulary,
                                                    ", ",
                                                    digest.Hex(),
                                                    "; make it again: anyorder prep --vocab ",
                                                    vocabulary));
}

}  // namespace anyorder::launcher
