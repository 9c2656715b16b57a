// Memory that can be touched only while an Opening lives, by any thread then.

#pragma once

#include <cstdint>
#include <map>

#include "core/base/mutex.h"

namespace anyorder::testing {

class FencedMemory {
 public:
  FencedMemory();
  ~FencedMemory();
  FencedMemory(const FencedMemory&) = delete;
  FencedMemory& operator=(const FencedMemory&) = delete;

  // Zeroed, 64-byte aligned, with a gap behind it. Null if there is no more room.
  void* Allocate(int64_t bytes);
  void Free(void* data);
  // Whether [data, data + bytes) lies in one block that has been allocated and not been freed.
  bool Contains(const void* data, int64_t bytes) const;
  // Whether any of it is this memory, in a block or not.
  bool Touches(const void* data, int64_t bytes) const;

  class Opening {
   public:
    explicit Opening(FencedMemory& memory) : memory_(memory) { memory_.Open(); }
    ~Opening() { memory_.Close(); }
    Opening(const Opening&) = delete;
    Opening& operator=(const Opening&) = delete;

   private:
    FencedMemory& memory_;
  };

 private:
  void Open();
  void Close();
  void Protect(int access) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  int openings_ ABSL_GUARDED_BY(mutex_) = 0;
  char* begin_ = nullptr;
  // Bytes from begin_ on that have ever been allocated, whole pages.
  int64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<char*, int64_t> blocks_ ABSL_GUARDED_BY(mutex_);  // sizes by their begin
};

}  // namespace anyorder::testing
