// The real file system with faults put in: chosen calls on chosen paths fail as a disk would make them fail.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"

#include "ckpt/file_system.h"
#include "core/base/status.h"

namespace anyorder::ckpt {

enum class FaultyCall { kNone, kCreate, kWrite, kSync, kRename, kSyncDirectory };

class FaultFileSystem final : public FileSystem {
 public:
  // From now on `call` fails with `error_number` on paths that contain `path_part`, `times` times.
  void Break(FaultyCall call, std::string path_part, int error_number, int times) {
    path_part_ = std::move(path_part);
    error_number_ = error_number;
    left_ = times;
    call_ = call;
  }
  // Payload writes wait between these two, as on a disk that has stopped answering.
  void Hang() { hangs_ = true; }
  void Continue() { hangs_ = false; }
  int num_faults() const { return num_faults_; }
  void set_free_bytes(int64_t bytes) { free_bytes_ = bytes; }

  absl::StatusOr<std::unique_ptr<WritableFile>> CreateNew(const std::string& path,
                                                          bool large) override {
    ANYORDER_RETURN_IF_ERROR(Check(FaultyCall::kCreate, path));
    ANYORDER_ASSIGN_OR_RETURN(auto file, Posix()->CreateNew(path, large));
    return std::make_unique<File>(this, path, std::move(file));
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) override {
    return Posix()->OpenForRead(path);
  }
  absl::Status MakeDirectory(const std::string& path) override {
    return Posix()->MakeDirectory(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    ANYORDER_RETURN_IF_ERROR(Check(FaultyCall::kRename, to));
    return Posix()->Rename(from, to);
  }
  absl::Status RemoveFile(const std::string& path) override { return Posix()->RemoveFile(path); }
  absl::Status RemoveDirectory(const std::string& path) override {
    return Posix()->RemoveDirectory(path);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    ANYORDER_RETURN_IF_ERROR(Check(FaultyCall::kSyncDirectory, path));
    return Posix()->SyncDirectory(path);
  }
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override {
    return Posix()->ListDirectory(path);
  }
  absl::StatusOr<int64_t> FreeBytes(const std::string& path) override {
    if (free_bytes_ >= 0) return free_bytes_.load();
    return Posix()->FreeBytes(path);
  }

 private:
  class File final : public WritableFile {
   public:
    File(FaultFileSystem* fs, std::string path, std::unique_ptr<WritableFile> file)
        : fs_(fs), path_(std::move(path)), file_(std::move(file)) {}
    absl::Status Preallocate(int64_t bytes) override { return file_->Preallocate(bytes); }
    absl::Status WriteAt(int64_t offset, const void* data, int64_t bytes) override {
      while (fs_->hangs_ && absl::StrContains(path_, "rank-"))
        absl::SleepFor(absl::Milliseconds(1));
      ANYORDER_RETURN_IF_ERROR(fs_->Check(FaultyCall::kWrite, path_));
      return file_->WriteAt(offset, data, bytes);
    }
    absl::Status SyncData() override {
      ANYORDER_RETURN_IF_ERROR(fs_->Check(FaultyCall::kSync, path_));
      return file_->SyncData();
    }
    absl::Status Close() override { return file_->Close(); }

   private:
    FaultFileSystem* const fs_;
    const std::string path_;
    const std::unique_ptr<WritableFile> file_;
  };

  absl::Status Check(FaultyCall call, const std::string& path) {
    if (call_ != call || !absl::StrContains(path, path_part_)) return absl::OkStatus();
    if (left_-- <= 0) return absl::OkStatus();
    ++num_faults_;
    return ErrnoStatus("injected fault on", path, error_number_);
  }

  std::atomic<bool> hangs_ = false;
  std::atomic<FaultyCall> call_ = FaultyCall::kNone;
  std::string path_part_;  // set before call_
  int error_number_ = 0;
  std::atomic<int> left_ = 0;
  std::atomic<int> num_faults_ = 0;
  std::atomic<int64_t> free_bytes_ = -1;
};

}  // namespace anyorder::ckpt
