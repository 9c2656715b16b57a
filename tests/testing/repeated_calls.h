// What a client of NFS does whose server carried a call out and whose answer was lost: it asks once
// more, and the program gets the answer to the second call. Define once in a program: it takes the
// place of the C library's calls.

#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace anyorder {

inline std::atomic<bool> calls_are_repeated = false;

// While one lives.
class RepeatedCalls {
 public:
  RepeatedCalls() { calls_are_repeated = true; }
  ~RepeatedCalls() { calls_are_repeated = false; }
};

template <typename Call>
int AskAgain(const Call& call) {
  const long first = call();
  return static_cast<int>(first == 0 && calls_are_repeated ? call() : first);
}

}  // namespace anyorder

extern "C" {
int rename(const char* from, const char* to) noexcept {
  return anyorder::AskAgain(
      [=] { return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0); });
}
int link(const char* from, const char* to) noexcept {
  return anyorder::AskAgain([=] { return syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0); });
}
int unlink(const char* path) noexcept {
  return anyorder::AskAgain([=] { return syscall(SYS_unlinkat, AT_FDCWD, path, 0); });
}
int rmdir(const char* path) noexcept {
  return anyorder::AskAgain([=] { return syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR); });
}
int mkdir(const char* path, mode_t mode) noexcept {
  return anyorder::AskAgain([=] { return syscall(SYS_mkdirat, AT_FDCWD, path, mode); });
}
}
