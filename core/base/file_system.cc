#include "core/base/file_system.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"

namespace anyorder {
namespace {

constexpr int64_t kMaxSmallFileBytes = int64_t{256} << 20;
constexpr size_t kBufferBytes = 1 << 20;

}  // namespace

std::string JoinPath(absl::string_view directory, absl::string_view name) {
  return absl::StrCat(directory, "/", name);
}

std::string ParentPath(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) return ".";
  return std::string(slash == 0 ? "/" : path.substr(0, slash));
}

std::string BaseName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == absl::string_view::npos ? path : path.substr(slash + 1));
}

absl::StatusOr<std::string> ReadSmallFile(FileSystem* fs, const std::string& path) {
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, fs->OpenForRead(path));
  if (file->size() > kMaxSmallFileBytes) {
    return absl::DataLossError(
        absl::StrCat("'", path, "' has ", file->size(), " bytes, more than any file of this kind"));
  }
  std::string content(static_cast<size_t>(file->size()), '\0');
  ANYORDER_RETURN_IF_ERROR(file->ReadAt(0, content.data(), file->size()));
  return content;
}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(FileSystem* fs,
                                                               const std::string& path) {
  const std::string temporary = path + ".tmp";
  const absl::Status removed = fs->RemoveFile(temporary);
  if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  ANYORDER_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                            fs->CreateNew(temporary, /*large=*/false));
  return std::unique_ptr<AtomicFile>(new AtomicFile(fs, path, std::move(file)));
}

AtomicFile::~AtomicFile() {
  if (!is_renamed_) fs_->RemoveFile(path_ + ".tmp").IgnoreError();
}

absl::Status AtomicFile::Append(absl::string_view bytes) {
  buffer_.append(bytes.data(), bytes.size());
  return buffer_.size() >= kBufferBytes ? Flush() : absl::OkStatus();
}

absl::Status AtomicFile::Flush() {
  const auto bytes = static_cast<int64_t>(buffer_.size());
  ANYORDER_RETURN_IF_ERROR(file_->WriteAt(flushed_, buffer_.data(), bytes));
  flushed_ += bytes;
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  if (!buffer_.empty()) ANYORDER_RETURN_IF_ERROR(Flush());
  ANYORDER_RETURN_IF_ERROR(file_->SyncData());
  // Some file systems report a failed write only here.
  ANYORDER_RETURN_IF_ERROR(file_->Close());
  ANYORDER_RETURN_IF_ERROR(fs_->Rename(path_ + ".tmp", path_));
  is_renamed_ = true;
  return fs_->SyncDirectory(ParentPath(path_));
}

absl::Status WriteFileAtomically(FileSystem* fs, const std::string& path,
                                 absl::string_view content) {
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(fs, path));
  ANYORDER_RETURN_IF_ERROR(
      file->file().WriteAt(0, content.data(), static_cast<int64_t>(content.size())));
  return file->Commit();
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view content) {
  return WriteFileAtomically(FileSystem::Posix(), path, content);
}

absl::Status RemoveDirectoryWithFiles(FileSystem* fs, const std::string& path) {
  const absl::StatusOr<std::vector<std::string>> names = fs->ListDirectory(path);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  ANYORDER_RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    const absl::Status removed = fs->RemoveFile(JoinPath(path, name));
    if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  }
  return fs->RemoveDirectory(path);
}

}  // namespace anyorder
