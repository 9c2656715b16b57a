// A file by which the nodes of a start tell whether the run directory that each of them sees is the
// same.

#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace anyorder::launcher {

// Written into RUN-DIR/.launch by the launcher, which owns that directory, and removed with this
// object. Its name is new each time: network file systems may remember for a minute that a name was
// not there.
class SharedMark {
 public:
  // Removes those of launchers that were killed, too.
  static absl::StatusOr<std::unique_ptr<SharedMark>> Write(const std::string& run_dir);
  ~SharedMark();
  SharedMark(const SharedMark&) = delete;
  SharedMark& operator=(const SharedMark&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit SharedMark(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

// On any node: OK once the file is seen, for which a few seconds are given; otherwise why not.
absl::Status SeeSharedMark(const std::string& path);

}  // namespace anyorder::launcher
