// Turns a silent hang into a message and an exit. MPI does not notice a peer that was lost with its
// node or its network (it waits for ever), so every rank times its own collectives.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace anyorder::dist {

class Heartbeat;

struct CollectiveWatchOptions {
  // A collective longer than this is reported, once.
  absl::Duration report_after = absl::Seconds(60);
  // And longer than this ends the process. The slowest step of any rank must fit, since the others
  // wait.
  absl::Duration exit_after = absl::Minutes(10);

  // Says for others what this rank does and, in reports, whom it waits for; borrowed, may be null.
  Heartbeat* heartbeat = nullptr;
  bool others_are_elsewhere =
      false;  // on other nodes, so that the heartbeat's file must be flushed for them

  // Where the line goes. Default: Log (which names host and rank).
  std::function<void(const std::string&)> report;
  // What ends the process. Default: _exit(kExitIo) at once, without MPI_Finalize or destructors,
  // because those may wait for the lost peer too; the launcher sees the status and restarts.
  std::function<void()> exit;
};

// Thread-safe between the one thread that calls collectives and its own; that thread sleeps unless
// a limit passes. Begin and End are called by Communicator.
class CollectiveWatch {
 public:
  CollectiveWatch(CollectiveWatchOptions options, int rank, std::string host);
  ~CollectiveWatch();
  CollectiveWatch(const CollectiveWatch&) = delete;
  CollectiveWatch& operator=(const CollectiveWatch&) = delete;

  // What the program is doing ("step 12, gradients"): appears in the report.
  void SetPhase(absl::string_view phase);

  void Begin(const char* collective);
  void End();

  // What the watch's thread asks several times a second, whatever the rank does: whether messages
  // that run without the host are well. An error ends the rank as a collective does that takes too
  // long. Null: nobody to ask; returns when the last question is answered.
  void set_probe(std::function<absl::Status()> probe);
  // Ends the rank for an error that its own thread met: the line, `before_exit`, the exit.
  void GiveUp(const absl::Status& why, const std::function<void()>& before_exit);

 private:
  void Run();
  // Whether all is well.
  bool AskProbe();
  std::string Describe(absl::Duration elapsed) const;
  std::string DescribeMissing() const;

  const CollectiveWatchOptions options_;
  const int rank_;
  const std::string host_;

  std::mutex probe_mutex_;  // before mutex_ where both are held
  std::function<absl::Status()> probe_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  bool has_probe_ = false;
  const char* collective_ = nullptr;  // null: between collectives
  int64_t number_ = 0;                // collectives begun; equal on all ranks in the same place
  absl::Time begun_;
  std::string phase_ = "start";
  std::thread thread_;  // last: uses all of the above
};

}  // namespace anyorder::dist
