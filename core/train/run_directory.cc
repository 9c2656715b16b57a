#include "core/train/run_directory.h"

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
      train_log(absl::StrCat(root, "/train.log")),
      service_log(absl::StrCat(root, "/ckptd.log")) {}

}  // namespace anyorder
