// A file system with faults put in: chosen calls fail as a disk would make them fail, or something
// happens right before them.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"

#include "core/base/file_system.h"
#include "core/base/mutex.h"
#include "core/base/status.h"

namespace anyorder::ckpt {

enum class FaultyCall {
  kNone,
  kCreate,
  kAllocate,
  kWrite,
  kSync,
  kClose,
  kAppend,
  kMakeDirectory,
  kRename,
  kRemove,
  kSyncDirectory,
  kOpen,
  kRead,
  kList,
  kFreeBytes,
};

class FaultFileSystem final : public FileSystem {
 public:
  explicit FaultFileSystem(FileSystem* base = FileSystem::Posix()) : base_(base) {}

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

  absl::StatusOr<std::unique_ptr<WritableFile>> CreateNew(const std::string& path,
                                                          bool large) override {
    const absl::Status fault = Check(FaultyCall::kCreate, path);
    if (!fault.ok() && !happens_) return fault;
    ASSIGN_OR_RETURN(auto file, base_->CreateNew(path, large));
    if (!fault.ok()) return fault;
    return std::make_unique<File>(this, path, std::move(file));
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) override {
    RETURN_IF_ERROR(Check(FaultyCall::kOpen, path));
    ASSIGN_OR_RETURN(auto file, base_->OpenForRead(path));
    return std::make_unique<Reader>(this, path, std::move(file));
  }
  absl::StatusOr<std::unique_ptr<AppendableFile>> OpenForAppend(const std::string& path) override {
    RETURN_IF_ERROR(Check(FaultyCall::kCreate, path));
    ASSIGN_OR_RETURN(auto file, base_->OpenForAppend(path));
    return std::make_unique<Appender>(this, path, std::move(file));
  }
  absl::Status MakeDirectory(const std::string& path) override {
    return Do(FaultyCall::kMakeDirectory, path, [&] { return base_->MakeDirectory(path); });
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Do(FaultyCall::kRename, to, [&] { return base_->Rename(from, to); });
  }
  absl::Status RemoveFile(const std::string& path) override {
    return Do(FaultyCall::kRemove, path, [&] { return base_->RemoveFile(path); });
  }
  absl::Status RemoveDirectory(const std::string& path) override {
    return Do(FaultyCall::kRemove, path, [&] { return base_->RemoveDirectory(path); });
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return Do(FaultyCall::kSyncDirectory, path, [&] { return base_->SyncDirectory(path); });
  }
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override {
    RETURN_IF_ERROR(Check(FaultyCall::kList, path));
    return base_->ListDirectory(path);
  }
  absl::StatusOr<int64_t> FreeBytes(const std::string& path) override {
    RETURN_IF_ERROR(Check(FaultyCall::kFreeBytes, path));
    if (free_bytes_ >= 0) return free_bytes_.load();
    return base_->FreeBytes(path);
  }

 private:
  // A file of any kind, and what its calls ask for faults.
  template <typename Kind>
  class Wrapped : public Kind {
   public:
    Wrapped(FaultFileSystem* fs, std::string path, std::unique_ptr<Kind> file)
        : fs_(fs), path_(std::move(path)), file_(std::move(file)) {}

   protected:
    FaultFileSystem* const fs_;
    const std::string path_;
    const std::unique_ptr<Kind> file_;
  };

  class File final : public Wrapped<WritableFile> {
   public:
    using Wrapped::Wrapped;
    absl::Status Preallocate(int64_t bytes) override {
      return fs_->Do(FaultyCall::kAllocate, path_, [&] { return file_->Preallocate(bytes); });
    }
    absl::Status WriteAt(int64_t offset, const void* data, int64_t bytes) override {
      while (fs_->hangs_ && absl::StrContains(path_, "rank-"))
        absl::SleepFor(absl::Milliseconds(1));
      const absl::Status fault = fs_->Check(FaultyCall::kWrite, path_);
      const absl::Status written =
          file_->WriteAt(offset, data, fault.ok() || fs_->happens_ ? bytes : bytes / 2);
      return fault.ok() ? written : fault;
    }
    absl::Status SyncData() override {
      return fs_->Do(FaultyCall::kSync, path_, [&] { return file_->SyncData(); });
    }
    absl::Status Close() override {
      // Whatever close says, the descriptor is gone.
      const absl::Status fault = fs_->Check(FaultyCall::kClose, path_);
      const absl::Status closed = file_->Close();
      return fault.ok() ? closed : fault;
    }
  };

  class Reader final : public Wrapped<ReadableFile> {
   public:
    using Wrapped::Wrapped;
    int64_t size() const override { return file_->size(); }
    absl::Status ReadAt(int64_t offset, void* dst, int64_t bytes) const override {
      RETURN_IF_ERROR(fs_->Check(FaultyCall::kRead, path_));
      fs_->bytes_read_ += bytes;
      return file_->ReadAt(offset, dst, bytes);
    }
  };

  class Appender final : public Wrapped<AppendableFile> {
   public:
    using Wrapped::Wrapped;
    absl::Status Append(absl::string_view text) override {
      return fs_->Do(FaultyCall::kAppend, path_, [&] { return file_->Append(text); });
    }
  };

  template <typename Operation>
  absl::Status Do(FaultyCall call, const std::string& path, const Operation& operation) {
    const absl::Status fault = Check(call, path);
    if (fault.ok()) return operation();
    if (happens_) operation().IgnoreError();
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

  FileSystem* const base_;
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
