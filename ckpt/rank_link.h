// The rank's part in knowing who is alive (core/liveness): shows its page to the service of its
// node, ticks in it, and ends the process when told to.

#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/time/time.h"

#include "ckpt/protocol.h"
#include "core/base/mutex.h"
#include "core/liveness/rank_page.h"

namespace anyorder::ckpt {

struct RankLinkOptions {
  std::string socket_path;
  std::string run_id;
  int64_t attempt = 0;
  // The rank ends when its service has been gone for this long, since then nobody can tell it that
  // its start is over.
  absl::Duration service_limit = absl::Seconds(30);
  // What ends the process. Default: one line, then _exit(kExitIo) at once, without destructors and
  // files, which may wait for what is lost.
  std::function<void(const std::string& why)> end;
};

// A thread from construction to destruction. Before the service was first reached it only tries.
class RankLink {
 public:
  RankLink(RankLinkOptions options, liveness::RankPage& page);
  ~RankLink();
  RankLink(const RankLink&) = delete;
  RankLink& operator=(const RankLink&) = delete;

 private:
  void Run();
  void Connect();
  // Why the process must end, "" if it need not.
  std::string Listen();

  const RankLinkOptions options_;
  liveness::RankPage& page_;
  std::optional<Channel> channel_;
  bool was_connected_ = false;
  absl::Duration away_;  // the service, since it was last connected

  Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: uses all of the above
};

}  // namespace anyorder::ckpt
