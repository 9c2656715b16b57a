// A file per rank that says what the rank does, readable by others while the rank itself can say
// nothing: stopped, stuck in the kernel, or lost. Without it a hang report could name only those
// who wait.
//
// The file is one page that the rank maps and writes as memory, which costs nothing and is exact to
// the last collective for every reader on the same machine. Readers on other nodes see what the
// file system has carried over.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace anyorder::dist {

// What a rank last said of itself.
struct RankBeat {
  int rank = 0;
  int64_t attempt = 0;
  int64_t process_id = 0;
  int64_t ticks = 0;       // grows as long as the process runs
  absl::Time last_tick;    // by its node's clock
  bool has_ended = false;  // the rank went on to its regular end
  std::string host;
  std::string phase;
  std::string collective;  // the last one begun, "" before the first
  int64_t number = 0;      // of it; equal on all ranks in the same place
  bool in_collective = false;

  // "rank 3 on node7 (process 4711): in phase 'step 12', in collective 57 (AllGather)"
  std::string ToString() const;
};

// Of the heartbeats in `directory`. NotFound or another error of open and read; DataLoss for a file
// that is none.
absl::StatusOr<RankBeat> ReadRankBeat(const std::string& directory, int rank);

// Those whom collective `number` of this attempt waits for, one after the other: ranks that
// have not reached it, and ranks without a sign of life for `silent_after`. "" if there are none,
// or no heartbeats.
std::string DescribeMissingRanks(const std::string& directory, int world_size, int64_t attempt,
                                 int64_t number, absl::Duration silent_after);

// Not thread-safe. Made by each rank for itself.
class Heartbeat {
 public:
  // Creates the directory and the file, or takes the file over. Errors: those of mkdir, open,
  // allocating and mapping.
  static absl::StatusOr<std::unique_ptr<Heartbeat>> Create(const std::string& directory, int rank,
                                                           int world_size, int64_t attempt,
                                                           absl::string_view host);
  ~Heartbeat();  // says that the rank has ended
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  void SetPhase(absl::string_view phase);
  void Begin(absl::string_view collective, int64_t number);
  void End();
  void Tick();
  // Hands the file to the file system, which would show it to other nodes only after many seconds.
  // May wait for a disk or network, and may run beside the others.
  void Flush();

  // DescribeMissingRanks of the same start of the run.
  std::string DescribeMissing(int64_t number, absl::Duration silent_after) const;

 private:
  struct Page;
  Heartbeat(std::string directory, int world_size, int64_t attempt, Page* page)
      : directory_(std::move(directory)), world_size_(world_size), attempt_(attempt), page_(page) {}
  template <typename Change>
  void Write(Change change);

  const std::string directory_;
  const int world_size_;
  const int64_t attempt_;
  Page* const page_;

  friend absl::StatusOr<RankBeat> ReadRankBeat(const std::string& directory, int rank);
};

}  // namespace anyorder::dist
