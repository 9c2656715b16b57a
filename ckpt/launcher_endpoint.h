// Where the launcher of a start listens for its services' reports: a file in the run directory,
// which a service reads once. Its token lets any reader talk to the launcher, so only the
// run's user may read the file.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "ckpt/protocol.h"
#include "core/base/file_system.h"

namespace anyorder::ckpt {

struct LauncherEndpoint {
  std::vector<std::string> addresses;  // as numbers, IPv4 and IPv6, to be tried in turn
  int64_t port = 0;
  std::string token;  // random
  // The launcher's silence after which a service ends its ranks. Infinite where the kernel ends
  // them with their launcher.
  absl::Duration silence_limit = absl::InfiniteDuration();
};

// run-dir/.launch/health-ATTEMPT
inline std::string LauncherEndpointPath(const std::string& run_dir, int64_t attempt) {
  return absl::StrCat(run_dir, "/.launch/health-", attempt);
}
std::string SerializeLauncherEndpoint(const LauncherEndpoint& endpoint);
// NotFound for a service that no launcher started.
absl::StatusOr<LauncherEndpoint> ReadLauncherEndpoint(FileSystem* fs, const std::string& path);

// Connects to one of its addresses. Errors: Unavailable, also after `limit` and for an address that
// is no number.
absl::StatusOr<Channel> ConnectToLauncher(const std::string& address, int64_t port,
                                          absl::Duration limit);

}  // namespace anyorder::ckpt
