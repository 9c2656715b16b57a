// A file system with faults put in: chosen calls fail as a disk would make them fail, or something
// happens right before them.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/time/clock.h"

#include "core/base/mutex.h"
#include "core/base/status.h"
#include "tests/testing/watched_file_system.h"

namespace anyorder::ckpt {

class FaultFileSystem final : public WatchedFileSystem {
 public:
  explicit FaultFileSystem(FileSystem* base = FileSystem::Posix()) : WatchedFileSystem(base) {}

  // From now on `call` fails with `error_number` on paths that contain `path_part`, `times` times.
  void Break(FaultyCall call, std::string path_part, int error_number, int times) {
    const MutexLock lock(&mutex_);
    chosen_ = call;
    path_part_ = std::move(path_part);
    error_number_ = error_number;
    left_ = times;
  }
  // The call number `index` from now on (0: the next) fails, whatever it is, and with `is_sticky`
  // all later ones, too. A failing write leaves half its bytes; `happens` calls are carried out and
  // fail all the same.
  void BreakCall(int64_t index, int error_number, bool is_sticky, bool happens = false) {
    const MutexLock lock(&mutex_);
    broken_index_ = num_calls_ + index;
    error_number_ = error_number;
    is_sticky_ = is_sticky;
    happens_ = happens;
    fault_ = FaultyCall::kNone;
    num_faults_ = 0;
  }
  void Heal() {
    const MutexLock lock(&mutex_);
    broken_index_ = -1;
    chosen_ = FaultyCall::kNone;
  }
  // Called right before every call with its number (from 0 over the life of the object).
  using BeforeCall = std::function<void(int64_t index, FaultyCall call, const std::string& path)>;
  void set_before_call(BeforeCall before) { before_call_ = std::move(before); }
  // Payload writes wait between these two, as on a disk that has stopped answering.
  void Hang() { hangs_ = true; }
  void Continue() { hangs_ = false; }
  void set_free_bytes(int64_t bytes) { free_bytes_ = bytes; }

  int num_faults() const { return num_faults_; }
  int64_t num_calls() const { return num_calls_; }
  int64_t bytes_read() const { return bytes_read_; }
  // The first call that BreakCall broke, and its path.
  FaultyCall fault() const { return fault_; }
  std::string fault_path() const {
    const MutexLock lock(&mutex_);
    return fault_path_;
  }

  absl::StatusOr<int64_t> FreeBytes(const std::string& path) override {
    if (free_bytes_ < 0) return WatchedFileSystem::FreeBytes(path);
    RETURN_IF_ERROR(Check(FaultyCall::kFreeBytes, path));
    return free_bytes_.load();
  }

 private:
  absl::Status Around(FileCall& call, Operation operation, Answer) override {
    const bool is_write = call.kind == FaultyCall::kWrite;
    while (is_write && hangs_ && absl::StrContains(call.path, "rank-"))
      absl::SleepFor(absl::Milliseconds(1));
    const absl::Status fault = Check(call.kind, call.to.empty() ? call.path : call.to);
    if (fault.ok()) {
      if (call.kind == FaultyCall::kRead) bytes_read_ += call.bytes;
      return operation();
    }
    if (is_write && !happens_) call.bytes /= 2;
    // Whatever close says, the descriptor is gone.
    if (is_write || happens_ || call.kind == FaultyCall::kClose) operation().IgnoreError();
    return fault;
  }

  absl::Status Check(FaultyCall call, const std::string& path) {
    const int64_t index = num_calls_++;
    if (before_call_) before_call_(index, call, path);
    const MutexLock lock(&mutex_);
    const bool by_index =
        broken_index_ >= 0 && (is_sticky_ ? index >= broken_index_ : index == broken_index_);
    const bool by_path = chosen_ == call && absl::StrContains(path, path_part_) && left_-- > 0;
    if (!by_index && !by_path) return absl::OkStatus();
    if (by_index && num_faults_ == 0) {
      fault_ = call;
      fault_path_ = path;
    }
    ++num_faults_;
    return ErrnoStatus("injected fault on", path, error_number_);
  }

  BeforeCall before_call_;  // set before use by threads
  std::atomic<bool> hangs_ = false;
  std::atomic<bool> happens_ = false;
  std::atomic<int> num_faults_ = 0;
  std::atomic<int64_t> num_calls_ = 0;
  std::atomic<int64_t> bytes_read_ = 0;
  std::atomic<int64_t> free_bytes_ = -1;
  std::atomic<FaultyCall> fault_ = FaultyCall::kNone;

  mutable Mutex mutex_;
  FaultyCall chosen_ ABSL_GUARDED_BY(mutex_) = FaultyCall::kNone;
  std::string path_part_ ABSL_GUARDED_BY(mutex_);
  int error_number_ ABSL_GUARDED_BY(mutex_) = 0;
  int left_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t broken_index_ ABSL_GUARDED_BY(mutex_) = -1;
  bool is_sticky_ ABSL_GUARDED_BY(mutex_) = false;
  std::string fault_path_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace anyorder::ckpt
