// Memory that host code cannot touch where it sees it. The same pages lie open elsewhere, for
// operations alone.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/mutex.h"
#include "kernels/backend.h"
#include "tests/testing/operation_arguments.h"

namespace anyorder::testing {

class FencedMemory {
 public:
  FencedMemory();
  ~FencedMemory();
  FencedMemory(const FencedMemory&) = delete;
  FencedMemory& operator=(const FencedMemory&) = delete;

  // Zeroed, 64-byte aligned, with a gap behind it. ResourceExhausted if there is no more room.
  absl::StatusOr<void*> Allocate(int64_t bytes);
  void Free(void* data);
  // A block that the host may touch, at the address where it is open.
  static absl::StatusOr<std::unique_ptr<kernels::Buffer>> AllocateStaging(
      std::shared_ptr<FencedMemory> memory, int64_t bytes);
  // Where [data, data + bytes) is open; null for null. Aborts unless it lies in one block that has
  // been allocated and not been freed.
  void* Open(const void* data, int64_t bytes) const;
  // Whether any of it is fenced, in a block or not.
  bool Touches(const void* data, int64_t bytes) const;

 private:
  mutable Mutex mutex_;
  char* fenced_ = nullptr;
  char* open_ = nullptr;
  // Bytes from fenced_ on that have ever been allocated, whole pages.
  int64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<const char*, int64_t> blocks_ ABSL_GUARDED_BY(mutex_);  // sizes by their begin
};

class FencedBuffer : public kernels::Buffer {
 public:
  // `data` is of `memory`'s Allocate, and is given back.
  FencedBuffer(std::shared_ptr<FencedMemory> memory, void* data, int64_t bytes)
      : memory_(std::move(memory)), data_(data), bytes_(bytes) {}
  ~FencedBuffer() override { memory_->Free(data_); }
  void* data() const override { return data_; }
  int64_t size_bytes() const override { return bytes_; }

 private:
  const std::shared_ptr<FencedMemory> memory_;
  void* const data_;
  const int64_t bytes_;
};

class StagingBuffer final : public FencedBuffer {
 public:
  StagingBuffer(std::shared_ptr<FencedMemory> memory, void* data, int64_t bytes, void* open)
      : FencedBuffer(std::move(memory), data, bytes), open_(open) {}
  void* data() const override { return open_; }

 private:
  void* const open_;
};

// An operation's arguments, pointed to where they are open. Aborts if one is no fenced memory.
// `sizes`, if not null, gets the bytes of each tensor at its end.
template <typename Args>
Args OpenArguments(const FencedMemory& memory, Args args, std::vector<int64_t>* sizes = nullptr) {
  const auto open_view = [&](auto& view, int64_t behind) {
    const int64_t elements = view.is_null() ? 0 : view.num_elements() + behind;
    const int64_t bytes = elements * SizeOf(view.dtype());
    if (bytes > 0) view = {memory.Open(view.raw(), bytes), view.dtype(), view.shape()};
    if (sizes != nullptr) sizes->push_back(bytes);
  };
  const auto open_array = [&]<typename T>(T*& array, int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    if (bytes > 0) array = static_cast<T*>(memory.Open(array, bytes));
  };
  PlaceVisitor visitor{open_view, open_array};
  VisitArguments(args, visitor);
  return args;
}

}  // namespace anyorder::testing
