// Whole messages over a stream socket between this process and a child.

#pragma once

#include <cstddef>

namespace anyorder::data {

// All of `size` bytes; false on error, with errno, and at the end of the stream, where it is 0.
bool ReadFully(int fd, void* out, size_t size);
// Sends all bytes; a peer that is gone is false, never a signal.
bool SendFully(int fd, const void* bytes, size_t size);

}  // namespace anyorder::data
