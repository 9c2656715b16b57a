// A file system that passes every call on through one place, where a test can look at it, hold it
// up or keep it from being carried out.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/file_system.h"
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

struct FileCall {
  FaultyCall kind = FaultyCall::kNone;
  std::string path;
  std::string to = {};  // of a rename
  int64_t bytes = 0;    // of kWrite and kRead
};

class WatchedFileSystem : public FileSystem {
 public:
  explicit WatchedFileSystem(FileSystem* base) : base_(base) {}

  absl::StatusOr<std::unique_ptr<WritableFile>> CreateNew(const std::string& path,
                                                          bool large) override {
    return Watch<Writer>(
        path, Ask({FaultyCall::kCreate, path}, [&] { return base_->CreateNew(path, large); }));
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) override {
    // Time stamps differ in length by a few bytes.
    return Watch<Reader>(path,
                         Ask(
                             {FaultyCall::kOpen, path}, [&] { return base_->OpenForRead(path); },
                             [](auto& file) { return absl::StrCat(file->size() / 4096); }));
  }
  absl::StatusOr<std::unique_ptr<AppendableFile>> OpenForAppend(const std::string& path) override {
    return Watch<Appender>(
        path, Ask({FaultyCall::kCreate, path}, [&] { return base_->OpenForAppend(path); }));
  }
  absl::Status MakeDirectory(const std::string& path) override {
    return Do({FaultyCall::kMakeDirectory, path}, [&] { return base_->MakeDirectory(path); });
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Do({FaultyCall::kRename, from, to}, [&] { return base_->Rename(from, to); });
  }
  absl::Status RemoveFile(const std::string& path) override {
    return Do({FaultyCall::kRemove, path}, [&] { return base_->RemoveFile(path); });
  }
  absl::Status RemoveDirectory(const std::string& path) override {
    return Do({FaultyCall::kRemove, path}, [&] { return base_->RemoveDirectory(path); });
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return Do({FaultyCall::kSyncDirectory, path}, [&] { return base_->SyncDirectory(path); });
  }
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override {
    return Ask(
        {FaultyCall::kList, path}, [&] { return base_->ListDirectory(path); },
        [](auto& names) { return absl::StrJoin(names, "\n"); });
  }
  absl::StatusOr<int64_t> FreeBytes(const std::string& path) override {
    return Ask({FaultyCall::kFreeBytes, path}, [&] { return base_->FreeBytes(path); });
  }

 protected:
  using Operation = absl::FunctionRef<absl::Status()>;
  using Answer = absl::FunctionRef<std::string()>;
  // Carries `call` out by operation(), or not; what the caller gets, which must be an error if not.
  // Of a write `call.bytes` may be lowered before. After an OK answer() is what the caller learns,
  // but for time stamps.
  virtual absl::Status Around(FileCall& call, Operation operation, Answer answer) = 0;

 private:
  // A file of any kind, and where its calls go.
  template <typename FileKind>
  class Watched : public FileKind {
   public:
    using Kind = FileKind;
    Watched(WatchedFileSystem* fs, std::string path, std::unique_ptr<Kind> file)
        : fs_(fs), path_(std::move(path)), file_(std::move(file)) {}

   protected:
    WatchedFileSystem* const fs_;
    const std::string path_;
    const std::unique_ptr<Kind> file_;
  };

  class Writer final : public Watched<WritableFile> {
   public:
    using Watched::Watched;
    absl::Status Preallocate(int64_t bytes) override {
      return fs_->Do({FaultyCall::kAllocate, path_}, [&] { return file_->Preallocate(bytes); });
    }
    absl::Status WriteAt(int64_t offset, const void* data, int64_t bytes) override {
      FileCall call{FaultyCall::kWrite, path_, "", bytes};
      return fs_->Around(
          call, [&] { return file_->WriteAt(offset, data, call.bytes); }, Nothing);
    }
    absl::Status SyncData() override {
      return fs_->Do({FaultyCall::kSync, path_}, [&] { return file_->SyncData(); });
    }
    absl::Status Close() override {
      return fs_->Do({FaultyCall::kClose, path_}, [&] { return file_->Close(); });
    }
  };

  class Reader final : public Watched<ReadableFile> {
   public:
    Reader(WatchedFileSystem* fs, std::string path, std::unique_ptr<Kind> file)
        : Watched(fs, std::move(path), std::move(file)), size_(file_->size()) {}
    int64_t size() const override { return size_; }
    absl::Status ReadAt(int64_t offset, void* dst, int64_t bytes) const override {
      return fs_->Do(
          {FaultyCall::kRead, path_, "", bytes}, [&] { return file_->ReadAt(offset, dst, bytes); },
          [&] { return std::string(static_cast<const char*>(dst), bytes); });
    }

   private:
    const int64_t size_;
  };

  class Appender final : public Watched<AppendableFile> {
   public:
    using Watched::Watched;
    absl::Status Append(absl::string_view text) override {
      return fs_->Do({FaultyCall::kAppend, path_}, [&] { return file_->Append(text); });
    }
  };

  static std::string Nothing() { return ""; }
  absl::Status Do(FileCall call, Operation operation, Answer answer = Nothing) {
    return Around(call, operation, answer);
  }
  // The same of a call that gives a value; text(value) is its answer.
  static constexpr auto kNothing = [](const auto&) { return std::string(); };
  template <typename Get, typename Text = decltype(kNothing)>
  auto Ask(FileCall call, const Get& get, const Text& text = kNothing) -> decltype(get()) {
    decltype(get()) value;
    RETURN_IF_ERROR(Around(
        call,
        [&] {
          value = get();
          return value.status();
        },
        [&] { return text(*value); }));
    return value;
  }
  template <typename File, typename Kind>
  absl::StatusOr<std::unique_ptr<Kind>> Watch(const std::string& path,
                                              absl::StatusOr<std::unique_ptr<Kind>> file) {
    if (!file.ok()) return file;
    return std::make_unique<File>(this, path, *std::move(file));
  }

  FileSystem* const base_;
};

}  // namespace anyorder::ckpt
