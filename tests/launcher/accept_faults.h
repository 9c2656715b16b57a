// Connections that cannot be accepted. Included, it stands between the program and libc.

#pragma once

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace anyorder {

// So many calls of accept and accept4 fail, with that number: those for connections of that family.
inline std::atomic<int> num_accept_faults = 0;
inline std::atomic<int> accept_fault = 0;
inline std::atomic<int> fault_family = AF_INET;

}  // namespace anyorder

// Instead of libc's, for this program.
extern "C" {
__attribute__((used)) inline int accept4(int socket, sockaddr* address, socklen_t* bytes,
                                         int flags) {
  int family = 0;
  socklen_t size = sizeof family;
  ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &family, &size);
  if (anyorder::num_accept_faults > 0 && family == anyorder::fault_family) {
    --anyorder::num_accept_faults;
    errno = anyorder::accept_fault;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_accept4, socket, address, bytes, flags));
}
__attribute__((used)) inline int accept(int socket, sockaddr* address, socklen_t* bytes) {
  return accept4(socket, address, bytes, 0);
}
}
