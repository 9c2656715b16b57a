// Device memory that operations take for themselves: a block for each stream, whose operations use
// it one after another. It grows when a shape comes up for the first time and keeps its size.

#pragma once

#include <cstdint>
#include <map>

#include "absl/status/status.h"

#include "core/base/stream.h"
#include "kernels/cuda/platform/runtime.h"

namespace anyorder::kernels::cuda {

// Made by Runtime::MakeScratch.
class StreamScratch {
 public:
  explicit StreamScratch(Runtime& runtime) : runtime_(runtime) {}
  virtual ~StreamScratch();
  StreamScratch(const StreamScratch&) = delete;
  StreamScratch& operator=(const StreamScratch&) = delete;

  // The block of `stream` has at least so many bytes from now on. ResourceExhausted.
  absl::Status Reserve(int64_t bytes, StreamView stream);
  // For the operation that comes next on `stream`, which finds any values there. A lack of memory
  // ends the program; a block that would have to grow inside of a graph aborts.
  virtual void* Take(int64_t bytes, StreamView stream);
  // Frees the block of `stream`.
  void Release(StreamView stream);

 protected:
  Runtime& runtime() { return runtime_; }

 private:
  struct Block {
    void* data = nullptr;
    int64_t bytes = 0;
  };
  void Free(Block& block);

  Runtime& runtime_;
  std::map<void*, Block> blocks_;
};

}  // namespace anyorder::kernels::cuda
