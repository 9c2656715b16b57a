#include "ckpt/file_system.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"

namespace anyorder::ckpt {
namespace {

constexpr int64_t kMaxSmallFileBytes = int64_t{256} << 20;

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
        absl::StrCat("'", path, "' has ", file->size(), " bytes, more than any such file of ours"));
  }
  std::string content(static_cast<size_t>(file->size()), '\0');
  ANYORDER_RETURN_IF_ERROR(file->ReadAt(0, content.data(), file->size()));
  return content;
}

absl::Status WriteSmallFileAtomically(FileSystem* fs, const std::string& path,
                                      absl::string_view content) {
  const std::string temporary = path + ".tmp";
  const absl::Status removed = fs->RemoveFile(temporary);
  if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                            fs->CreateNew(temporary, /*large=*/false));
  ANYORDER_RETURN_IF_ERROR(file->WriteAt(0, content.data(), static_cast<int64_t>(content.size())));
  ANYORDER_RETURN_IF_ERROR(file->SyncData());
  ANYORDER_RETURN_IF_ERROR(file->Close());
  ANYORDER_RETURN_IF_ERROR(fs->Rename(temporary, path));
  return fs->SyncDirectory(ParentPath(path));
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

}  // namespace anyorder::ckpt
