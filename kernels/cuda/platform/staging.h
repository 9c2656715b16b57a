// Copies between a device and host memory that is not pinned, through a ring of pinned chunks, so
// that neither the host waits for the GPU nor the driver pins pages in passing.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "kernels/cuda/platform/runtime.h"

namespace anyorder::kernels::cuda {

class Staging {
 public:
  explicit Staging(Runtime& runtime) : runtime_(runtime) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Pins the ring. Once, before anything else.
  absl::Status Prepare();
  // `host` has been read when it returns.
  void CopyToDevice(const void* host, void* device, int64_t bytes, StreamView stream);
  // `host` is complete after Deliver of that stream.
  void CopyToHost(const void* device, void* host, int64_t bytes, StreamView stream);
  // Hands over all that CopyToHost of this stream still holds. REQUIRES that the stream is
  // synchronised.
  void Deliver(StreamView stream);

  static constexpr int64_t kChunkBytes = 256 * 1024;
  static constexpr int kChunks = 64;

 private:
  struct Chunk {
    char* memory = nullptr;
    EventView last_use;
    void* host = nullptr;  // where its contents are still to go; null: nowhere
    int64_t bytes = 0;
    void* stream = nullptr;
  };

  // The next chunk of the ring, once its last copy is over.
  Chunk& Take();
  static void HandOver(Chunk& chunk);

  Runtime& runtime_;
  char* ring_ = nullptr;
  std::vector<Chunk> chunks_;
  size_t next_ = 0;
};

}  // namespace anyorder::kernels::cuda
