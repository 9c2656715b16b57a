// Memory that can be touched only while an Opening lives. Used by one thread at a time.

#pragma once

#include <cstdint>
#include <map>

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
    explicit Opening(FencedMemory& memory) : memory_(memory) { memory_.Protect(false); }
    ~Opening() { memory_.Protect(true); }
    Opening(const Opening&) = delete;
    Opening& operator=(const Opening&) = delete;

   private:
    FencedMemory& memory_;
  };

 private:
  void Protect(bool closed) const;

  char* begin_ = nullptr;
  int64_t used_ = 0;  // bytes from begin_ on that have ever been allocated, whole pages
  std::map<char*, int64_t> blocks_;  // sizes by their begin
};

}  // namespace anyorder::testing
