// Whole messages over a stream socket between this process and a child.

#pragma once

#include <cstddef>

namespace anyorder::data {

// All of `size` bytes; false at the end of the stream or on error.
bool ReadFully(int fd, void* out, size_t size);
// The same; a peer that is gone is false, never a signal.
bool SendFully(int fd, const void* bytes, size_t size);

}  // namespace anyorder::data
