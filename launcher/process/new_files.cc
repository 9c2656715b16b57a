#include "launcher/process/new_files.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/base/file_system.h"
#include "core/base/named_path.h"
#include "core/base/status.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;

// umask can only be read by setting it; no other thread of this program makes files.
mode_t CurrentUmask() {
  const mode_t mask = umask(0);
  umask(mask);
  return mask;
}

absl::Status Exists(const std::string& path, const std::string& option) {
  return AlreadyExists("'", path, "' exists and is not overwritten; name another ", option);
}

bool IsTaken(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NewFile>> NewFile::Create(const std::string& path,
                                                         const std::string& option) {
  if (path.empty()) return nullptr;
  if (IsTaken(path)) return Exists(path, option);
  std::unique_ptr<NewFile> file(new NewFile(path, option));
  std::string temporary = path + ".partial-XXXXXX";
  const int fd = ::mkstemp(temporary.data());
  if (fd < 0) return ErrnoStatus("make", path);
  file->temporary_ = temporary;
  // mkstemp makes it private; it is to be as readable as any other file of the user.
  ::fchmod(fd, 0666 & ~CurrentUmask());
  file->file_ = ::fdopen(fd, "w");
  return file;
}

NewFile::~NewFile() {
  if (file_ != nullptr) std::fclose(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

absl::Status NewFile::Append(absl::string_view bytes) {
  const bool is_written =
      std::fwrite(bytes.data(), 1, bytes.size(), file_) == bytes.size() && std::fflush(file_) == 0;
  return is_written ? absl::OkStatus() : ErrnoStatus("write", path_);
}

absl::Status NewFile::Publish() {
  if (::fsync(::fileno(file_)) != 0) return ErrnoStatus("write", path_);
  if (std::fclose(std::exchange(file_, nullptr)) != 0) return ErrnoStatus("write", path_);
  // A link fails where a rename would replace; one that NFS has asked for twice is there. Not every
  // file system has them.
  std::error_code error;
  if (::link(temporary_.c_str(), path_.c_str()) != 0 && !fs::equivalent(temporary_, path_, error)) {
    if (IsTaken(path_)) return Exists(path_, option_);
    RETURN_IF_ERROR(FileSystem::Posix()->Rename(temporary_, path_));
    temporary_.clear();
  }
  return FileSystem::Posix()->SyncDirectory(ParentPath(path_));
}

absl::StatusOr<ScratchFolder> ScratchFolder::Make(const std::string& prefix) {
  const char* const variable = ::getenv("TMPDIR");
  const std::string parent = variable == nullptr || *variable == '\0' ? "/tmp" : variable;
  std::string path = absl::StrCat(parent, "/", prefix, "-XXXXXX");
  if (::mkdtemp(path.data()) != nullptr) return ScratchFolder(path);
  return InvalidArgument("the directory for temporary files, '", parent, "', cannot be used (",
                         ::strerror(errno), "); set TMPDIR to one that is there");
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

absl::Status RefuseUnlessAbsentOrEmpty(const fs::path& output, const std::string& option) {
  if (output.empty()) return InvalidArgument(option, " is empty; name a directory");
  std::error_code error;
  // A shell in it would go on to show the old one, without what was made.
  if (fs::equivalent(output, ".", error))
    return AlreadyExists(option, " '", output.string(), "' is the current directory; name another");
  if (!fs::exists(output, error) ||
      (fs::is_directory(output, error) && fs::is_empty(output, error)))
    return absl::OkStatus();
  return AlreadyExists(option, " '", output.string(),
                       "' is not an empty directory; name another (nothing was changed)");
}

absl::Status RefuseUnlessMarked(const std::string& path, absl::string_view mark, size_t bytes,
                                absl::string_view refusal) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return absl::OkStatus();
  std::string begin(bytes, '\0');
  if (fs::is_regular_file(status))
    std::ifstream(path, std::ios::binary).read(begin.data(), static_cast<int64_t>(bytes));
  if (absl::StrContains(begin, mark)) return absl::OkStatus();
  return AlreadyExists("'", path, "' ", refusal);
}

absl::Status MakeDirectories(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return error ? ErrnoStatus("mkdir", path, error.value()) : absl::OkStatus();
}

absl::StatusOr<NewDirectory> NewDirectory::Create(const std::string& output,
                                                  const std::string& option) {
  NewDirectory directory;
  RETURN_IF_ERROR(RefuseUnlessAbsentOrEmpty(output, option));
  directory.output_ = NamedPath(output);
  const fs::path parent = directory.output_.parent_path();
  if (!parent.empty()) RETURN_IF_ERROR(MakeDirectories(parent.string()));
  // A new name: what an earlier start or the user left next to `output` stays.
  std::string name = directory.output_.string() + ".partial-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) return ErrnoStatus("mkdir", name);
  directory.temporary_ = name;
  // mkdtemp makes it private; it is to be as readable as any other directory of the user.
  std::error_code ignored;
  fs::permissions(directory.temporary_, fs::perms(0777 & ~CurrentUmask()), ignored);
  return directory;
}

NewDirectory::NewDirectory(NewDirectory&& other) noexcept
    : output_(std::move(other.output_)), temporary_(std::exchange(other.temporary_, {})) {}

NewDirectory::~NewDirectory() {
  std::error_code error;
  if (!temporary_.empty()) fs::remove_all(temporary_, error);
}

absl::Status NewDirectory::Publish() {
  // Replaces an empty directory.
  RETURN_IF_ERROR(FileSystem::Posix()->Rename(temporary_.string(), output_.string()));
  temporary_.clear();
  return FileSystem::Posix()->SyncDirectory(ParentPath(output_.string()));
}

void KeepFilesPrivate() {
  ::umask(077);
  // Within a job srun gives its tasks, and the files that it writes for them, the umask of the
  // job's submission.
  ::setenv("SLURM_UMASK", "0077", /*overwrite=*/1);
}

absl::Status CloseToOthers(const std::string& directory) {
  std::error_code error;
  fs::permissions(directory, fs::perms::group_all | fs::perms::others_all, fs::perm_options::remove,
                  error);
  if (!error) return absl::OkStatus();
  return Annotate(ErrnoStatus("change the mode of", directory, error.value()), "run.private");
}

}  // namespace anyorder::launcher
