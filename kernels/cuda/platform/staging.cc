#include "kernels/cuda/platform/staging.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder::kernels::cuda {

Staging::~Staging() {
  for (const Chunk& chunk : chunks_) {
    runtime_.Synchronize(chunk.last_use);
    runtime_.DestroyEvent(chunk.last_use);
  }
  if (ring_ != nullptr) runtime_.FreePinned(ring_);
}

absl::Status Staging::Prepare() {
  ASSIGN_OR_RETURN(void* const ring, runtime_.AllocatePinned(kChunkBytes * kChunks));
  ring_ = static_cast<char*>(ring);
  for (int i = 0; i < kChunks; ++i) {
    Chunk chunk;
    chunk.memory = ring_ + i * kChunkBytes;
    chunk.last_use = runtime_.MakeEvent();
    chunks_.push_back(chunk);
  }
  return absl::OkStatus();
}

void Staging::HandOver(Chunk& chunk) {
  if (chunk.host == nullptr) return;
  std::memcpy(chunk.host, chunk.memory, static_cast<size_t>(chunk.bytes));
  chunk.host = nullptr;
}

Staging::Chunk& Staging::Take() {
  Chunk& chunk = chunks_[next_];
  next_ = (next_ + 1) % chunks_.size();
  runtime_.Synchronize(chunk.last_use);
  HandOver(chunk);
  return chunk;
}

void Staging::CopyToDevice(const void* host, void* device, int64_t bytes, StreamView stream) {
  ANYORDER_CHECK(!runtime_.IsCapturing(stream)) << "a copy from the host inside of a graph";
  for (int64_t begin = 0; begin < bytes; begin += kChunkBytes) {
    const int64_t size = std::min(kChunkBytes, bytes - begin);
    Chunk& chunk = Take();
    std::memcpy(chunk.memory, static_cast<const char*>(host) + begin, static_cast<size_t>(size));
    runtime_.CopyToDevice(chunk.memory, static_cast<char*>(device) + begin, size, stream);
    runtime_.Record(chunk.last_use, stream);
  }
}

void Staging::CopyToHost(const void* device, void* host, int64_t bytes, StreamView stream) {
  ANYORDER_CHECK(!runtime_.IsCapturing(stream)) << "a copy to the host inside of a graph";
  if (bytes > 0 && runtime_.IsPinned(host)) {
    runtime_.CopyToHost(device, host, bytes, stream);
    return;
  }
  for (int64_t begin = 0; begin < bytes; begin += kChunkBytes) {
    const int64_t size = std::min(kChunkBytes, bytes - begin);
    Chunk& chunk = Take();
    runtime_.CopyToHost(static_cast<const char*>(device) + begin, chunk.memory, size, stream);
    runtime_.Record(chunk.last_use, stream);
    chunk.host = static_cast<char*>(host) + begin;
    chunk.bytes = size;
    chunk.stream = stream.handle;
  }
}

// From the oldest on, so that of two copies to one place the later one stays.
void Staging::Deliver(StreamView stream) {
  for (size_t i = 0; i < chunks_.size(); ++i) {
    Chunk& chunk = chunks_[(next_ + i) % chunks_.size()];
    if (chunk.stream == stream.handle) HandOver(chunk);
  }
}

}  // namespace anyorder::kernels::cuda
