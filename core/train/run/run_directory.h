// Names inside a run directory (core/train/FORMAT.md).

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace anyorder {

struct RunDirectory {
  explicit RunDirectory(absl::string_view directory);

  std::string root;
  std::string config;   // config.toml: resolved and frozen at the first start
  std::string metrics;  // metrics.jsonl: one object a step
  std::string
      redone;  // metrics.redone.jsonl: lines of steps that a crash lost and a later start did again
  std::string ledger;       // ledger.jsonl: starts, stops, commits, samples consumed
  std::string tensorboard;  // tensorboard/
  std::string loss_plot;    // loss.svg
  std::string launch;       // .launch/: the launcher's lease
  std::string heartbeats;   // .launch/ranks/: what each rank is doing (dist/heartbeat.h)
  std::string train_log;    // train.log: what the ranks printed
  std::string service_log;  // ckptd.log
};

// InvalidArgument unless `directory` is named and holds a run: what was looked for and how a run is
// started.
absl::Status CheckIsRun(absl::string_view directory);

}  // namespace anyorder
