// Ports that others may reach, also those who must not be trusted.

#pragma once

#include <poll.h>

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "core/base/monotonic_clock.h"
#include "core/base/unique_fd.h"

namespace anyorder {

// A socket that listens and does not block. Not thread-safe.
class ListeningSocket {
 public:
  ListeningSocket() = default;
  explicit ListeningSocket(UniqueFd fd) : fd_(std::move(fd)) {}
  // At a TCP port; 0: any that is free. "::" hears IPv4, too. Errors: Unavailable if this machine
  // cannot listen there.
  static absl::StatusOr<ListeningSocket> Open(const std::string& host, int port);

  bool valid() const { return fd_.valid(); }
  int port() const;
  bool is_pausing() const { return MonotonicNow() < next_accept_; }
  // For poll(2). In a pause nothing is asked for: that somebody waits would end each wait.
  pollfd PollItem() const { return {is_pausing() ? -1 : fd_.get(), POLLIN, 0}; }
  // The next connection, which does not block either; an invalid one if nobody waits. What keeps it
  // from being accepted, such as a lack of descriptors, is logged once a minute and starts a pause
  // of 100 ms, in which nothing is accepted.
  UniqueFd Accept();

 private:
  UniqueFd fd_;
  absl::Time next_accept_ = absl::InfinitePast();
  absl::Time next_warning_ = absl::InfinitePast();
};

// Whether `said` is the secret, which is not empty. In a time that depends on the length of `said`
// only.
bool IsSecret(absl::string_view said, absl::string_view secret);

}  // namespace anyorder
