// Names inside a run directory (core/train/FORMAT.md), and files there that grow.

#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/unique_fd.h"

namespace anyorder {

struct RunDirectory {
  explicit RunDirectory(absl::string_view directory) : root(directory) {}

  std::string root;
  std::string config = root + "/config.toml";     // resolved and frozen at the first start
  std::string metrics = root + "/metrics.jsonl";  // one object a step
  // Lines of steps that a crash lost and a later start did again.
  std::string redone = root + "/metrics.redone.jsonl";
  std::string ledger = root + "/ledger.jsonl";  // starts, stops, commits, samples consumed
  // Of a launcher that starts ranks on other machines: two of them must not append to one file.
  std::string launcher_ledger = root + "/ledger.launcher.jsonl";
  std::string tensorboard = root + "/tensorboard";
  std::string prometheus = root + "/metrics.prom";  // for monitoring (launcher/start/run_pace.h)
  std::string launch = root + "/.launch";           // the launcher's lease
  std::string pace = launch + "/pace";              // by start: its slowest ranks
  std::string nodes = launch + "/nodes.json";       // what they have (node_inventory.h)
  std::string train_log = root + "/train.log";      // what the ranks printed
  std::string service_log = root + "/ckptd.log";
};

// InvalidArgument unless `directory` is named and holds a run: what was looked for and how a run is
// started.
absl::Status CheckIsRun(absl::string_view directory);

// A file that only grows, one write(2) a record, so that a crash leaves whole records and at most
// one torn tail. Several processes of one machine may append to one file. Those of several may not:
// a client of NFS writes where it believes the end to be.
class AppendFile {
 public:
  // Creates the file, durably, if needed. A last line without a newline was never complete and is
  // cut off, which the log says.
  static absl::StatusOr<AppendFile> Open(const std::string& path);

  // On an error a part of `bytes` may be there. It is not cut off: another process may have
  // appended behind it.
  absl::Status Append(absl::string_view bytes);
  // `line` and a newline, on a line of its own: what an append that failed has left before it gets
  // its newline first. Readers leave such fragments out.
  absl::Status AppendLine(absl::string_view line);
  // Cuts off a last line that has no newline: so many bytes. Only where nobody else appends.
  absl::StatusOr<int64_t> CutFragment();
  // Makes what was appended survive a power cut.
  absl::Status Sync();

 private:
  AppendFile(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  UniqueFd fd_;
  std::string path_;
};

}  // namespace anyorder
