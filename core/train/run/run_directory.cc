#include "core/train/run/run_directory.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace anyorder {

RunDirectory::RunDirectory(absl::string_view directory)
    : root(directory),
      config(absl::StrCat(root, "/config.toml")),
      metrics(absl::StrCat(root, "/metrics.jsonl")),
      redone(absl::StrCat(root, "/metrics.redone.jsonl")),
      ledger(absl::StrCat(root, "/ledger.jsonl")),
      tensorboard(absl::StrCat(root, "/tensorboard")),
      loss_plot(absl::StrCat(root, "/loss.svg")),
      launch(absl::StrCat(root, "/.launch")),
      heartbeats(absl::StrCat(launch, "/ranks")),
      train_log(absl::StrCat(root, "/train.log")),
      service_log(absl::StrCat(root, "/ckptd.log")) {}

absl::Status CheckIsRun(absl::string_view directory) {
  if (directory.empty()) return absl::InvalidArgumentError("--run-dir is empty; name a directory");
  std::error_code error;
  if (std::filesystem::is_regular_file(RunDirectory(directory).config, error))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "'", directory,
      "' is not a run directory: it has no config.toml; 'anyorder launch --config FILE "
      "--run-dir DIR' starts a run"));
}

}  // namespace anyorder
