// Whole messages over a stream socket between this process and a child.

#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace anyorder::data {

// All of `size` bytes; false on error, with errno, and at the end of the stream, where it is 0.
inline bool ReadFully(int fd, void* out, size_t size) {
  auto* next = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t got = ::read(fd, next, size);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = 0;
    if (got <= 0) return false;
    next += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

// Sends all bytes; a peer that is gone is false, never a signal.
inline bool SendFully(int fd, const void* bytes, size_t size) {
  const auto* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t sent = ::send(fd, next, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    next += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

}  // namespace anyorder::data
