#include "tests/scale/file_calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <utility>

#include "core/base/mutex.h"

namespace anyorder::testing {
namespace {

constexpr int kMostFiles = 1 << 16;

// Never destroyed: threads may outlive it.
struct Counter {
  std::atomic<bool> is_on = false;
  std::atomic<bool> is_watched[kMostFiles] = {};
  Mutex mutex;
  std::string directory ABSL_GUARDED_BY(mutex);
  FileCallCounts counts ABSL_GUARDED_BY(mutex);
  std::string names[kMostFiles] ABSL_GUARDED_BY(mutex);  // of open files that are watched
};
Counter& State() {
  static Counter* const counter = new Counter;
  return *counter;
}

std::string WithoutNumbers(const std::string& name) {
  std::string general;
  for (const char c : name) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit) general.push_back(c);
    if (is_digit && (general.empty() || general.back() != '#')) general.push_back('#');
  }
  return general;
}

// The general name of `path`, "" if nobody counts it.
std::string Count(FileCall call, const char* path) {
  Counter& state = State();
  if (!state.is_on || path == nullptr) return "";
  const std::string whole = path;
  const MutexLock lock(&state.mutex);
  if (whole.rfind(state.directory, 0) != 0) return "";
  std::string name = WithoutNumbers(whole.substr(state.directory.size()));
  ++state.counts[{call, name}];
  return name;
}

void CountOn(FileCall call, int fd) {
  Counter& state = State();
  if (fd < 0 || fd >= kMostFiles || !state.is_watched[fd]) return;
  const MutexLock lock(&state.mutex);
  ++state.counts[{call, state.names[fd]}];
}

int Opened(const char* path, int fd) {
  const std::string name = Count(FileCall::kOpen, path);
  if (fd < 0 || fd >= kMostFiles) return fd;
  Counter& state = State();
  if (!name.empty()) {
    const MutexLock lock(&state.mutex);
    state.names[fd] = name;
  }
  state.is_watched[fd] = !name.empty();
  return fd;
}

void Closed(int fd) {
  if (fd >= 0 && fd < kMostFiles) State().is_watched[fd] = false;
}

mode_t ModeOf(int flags, va_list arguments) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

void CountFileCalls(const std::string& directory) {
  Counter& state = State();
  const MutexLock lock(&state.mutex);
  state.directory = directory.empty() ? "" : directory + "/";
  state.counts.clear();
  state.is_on = !directory.empty();
}

FileCallCounts TakeFileCalls() {
  Counter& state = State();
  const MutexLock lock(&state.mutex);
  return std::exchange(state.counts, {});
}

}  // namespace anyorder::testing

// The program's own symbols come before those of the C library, for libstdc++, too.

#define ANYORDER_REAL(name) \
  static const auto real = reinterpret_cast<decltype(&name)>(dlsym(RTLD_NEXT, #name))

using anyorder::testing::Closed;
using anyorder::testing::Count;
using anyorder::testing::CountOn;
using anyorder::testing::FileCall;
using anyorder::testing::ModeOf;
using anyorder::testing::Opened;

extern "C" {

int open(const char* path, int flags, ...) {
  ANYORDER_REAL(open);
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Opened(path, real(path, flags, mode));
}

int openat(int directory, const char* path, int flags, ...) {
  ANYORDER_REAL(openat);
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = ModeOf(flags, arguments);
  va_end(arguments);
  return Opened(path, real(directory, path, flags, mode));
}

FILE* fopen(const char* path, const char* mode) {
  ANYORDER_REAL(fopen);
  Count(FileCall::kOpen, path);
  return real(path, mode);
}

int close(int fd) {
  ANYORDER_REAL(close);
  Closed(fd);
  return real(fd);
}

#define ANYORDER_NAME_CALL(result, name, parameters, arguments) \
  result name parameters {                                      \
    ANYORDER_REAL(name);                                        \
    Count(FileCall::kName, path);                               \
    return real arguments;                                      \
  }

ANYORDER_NAME_CALL(int, rename, (const char* from, const char* path), (from, path))
ANYORDER_NAME_CALL(int, unlink, (const char* path), (path))
ANYORDER_NAME_CALL(int, unlinkat, (int directory, const char* path, int flags),
                   (directory, path, flags))
ANYORDER_NAME_CALL(int, mkdir, (const char* path, mode_t mode), (path, mode))
ANYORDER_NAME_CALL(int, rmdir, (const char* path), (path))
ANYORDER_NAME_CALL(int, remove, (const char* path), (path))
ANYORDER_NAME_CALL(int, stat, (const char* path, struct stat* found), (path, found))
ANYORDER_NAME_CALL(int, lstat, (const char* path, struct stat* found), (path, found))
ANYORDER_NAME_CALL(int, access, (const char* path, int mode), (path, mode))
ANYORDER_NAME_CALL(int, statvfs, (const char* path, struct statvfs* found), (path, found))
ANYORDER_NAME_CALL(DIR*, opendir, (const char* path), (path))

#define ANYORDER_FILE_CALL(result, name, call, parameters, arguments) \
  result name parameters {                                            \
    ANYORDER_REAL(name);                                              \
    CountOn(FileCall::call, fd);                                      \
    return real arguments;                                            \
  }

ANYORDER_FILE_CALL(int, fsync, kSync, (int fd), (fd))
ANYORDER_FILE_CALL(int, fdatasync, kSync, (int fd), (fd))
ANYORDER_FILE_CALL(int, fallocate, kData, (int fd, int mode, off_t offset, off_t bytes),
                   (fd, mode, offset, bytes))
ANYORDER_FILE_CALL(ssize_t, read, kData, (int fd, void* to, size_t bytes), (fd, to, bytes))
ANYORDER_FILE_CALL(ssize_t, write, kData, (int fd, const void* from, size_t bytes),
                   (fd, from, bytes))
ANYORDER_FILE_CALL(ssize_t, pread, kData, (int fd, void* to, size_t bytes, off_t offset),
                   (fd, to, bytes, offset))
ANYORDER_FILE_CALL(ssize_t, pwrite, kData, (int fd, const void* from, size_t bytes, off_t offset),
                   (fd, from, bytes, offset))

}  // extern "C"
