// What a rank says of itself, in one page of memory that its node's checkpoint service reads: also
// when the rank can say nothing any more, because it was stopped, is stuck in the kernel, or died.
//
// The rank writes it as plain memory, at each collective and each phase, which costs nothing; no
// file system has a part in it.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/mutex.h"
#include "core/base/unique_fd.h"

namespace anyorder::liveness {

// What the time of a rank's steps went into, added up since its start, as the host sees it; without
// evaluations and saves.
struct RankTimes {
  int64_t steps = 0;             // of the run, when the rank did its last one; 0: none yet
  int64_t compute_ns = 0;        // all that is not one of the next two
  int64_t data_wait_ns = 0;      // for the loader
  int64_t communication_ns = 0;  // in collectives, with the wait for slower ranks
};

// The part of it that lies in the page as it is.
struct RankNumbers {
  int rank = 0;
  int64_t process_id = 0;
  int64_t ticks = 0;       // grows several times a second as long as the process runs
  bool has_ended = false;  // the rank went on to its regular end
  int64_t num_phases = 0;  // begun
  int64_t progress = 0;    // grows in a phase that is long and goes on: loading
  int64_t number = 0;      // of the last collective begun; equal on all ranks in the same place
  bool in_collective = false;
  RankTimes times;
};

// What a rank last said.
struct RankState : RankNumbers {
  std::string host;
  std::string phase;       // "set-up", "step 12"
  std::string collective;  // the last one begun, "" before the first

  // "rank 3 on node7 (process 4711): in phase 'step 12', in collective 57 (AllGather)"
  std::string ToString() const;
};

// Thread-safe. Made by each rank for itself.
class RankPage {
 public:
  // Errors: those of memfd_create, allocating, sealing and mapping.
  static absl::StatusOr<std::unique_ptr<RankPage>> Create(int rank, absl::string_view host);
  ~RankPage();  // says that the rank has ended
  RankPage(const RankPage&) = delete;
  RankPage& operator=(const RankPage&) = delete;

  // MPI may number ranks otherwise than what started them.
  void SetRank(int rank) {
    Write([rank](Page& page) { page.numbers.rank = rank; });
  }
  void SetPhase(absl::string_view phase) {
    Write([phase](Page& page) {
      Copy(phase, page.phase);
      ++page.numbers.num_phases;
    });
  }
  // `amount` > 0 of whatever the phase counts: bytes, files, batches.
  void AddProgress(int64_t amount) {
    Write([amount](Page& page) { page.numbers.progress += amount; });
  }
  // Collectives are numbered from 1.
  void Begin(absl::string_view collective) {
    Write([collective](Page& page) {
      Copy(collective, page.collective);
      ++page.numbers.number;
      page.numbers.in_collective = true;
    });
  }
  void End() {
    Write([](Page& page) { page.numbers.in_collective = false; });
  }
  void Tick() {
    Write([](Page& page) { ++page.numbers.ticks; });
  }
  void SetTimes(const RankTimes& times) {
    Write([&times](Page& page) { page.numbers.times = times; });
  }

  // The memory, for ReadRankPage in another process.
  absl::StatusOr<UniqueFd> Duplicate() const;

 private:
  struct Page {
    uint64_t magic;
    std::atomic<uint64_t> version;  // odd while the rank writes
    RankNumbers numbers;
    char host[256];
    char phase[128];
    char collective[64];
  };
  RankPage(UniqueFd fd, Page* page) : fd_(std::move(fd)), page_(page) {}
  template <size_t kSize>
  static void Copy(absl::string_view text, char (&field)[kSize]) {
    field[text.copy(field, kSize - 1)] = '\0';
  }
  template <typename Change>
  void Write(Change change) {
    const MutexLock lock(&mutex_);
    page_->version.fetch_add(1);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // else Arm may show the change first
    change(*page_);
    page_->version.fetch_add(1);
  }

  const UniqueFd fd_;  // memfd, sealed against resizing
  Mutex mutex_;        // of the writers among each other
  Page* const page_ ABSL_PT_GUARDED_BY(mutex_);

  friend absl::StatusOr<RankState> ReadRankPage(int fd);
};

// Takes milliseconds at most, whatever the rank does. DataLoss if it is not the memory of a page.
absl::StatusOr<RankState> ReadRankPage(int fd);

}  // namespace anyorder::liveness
