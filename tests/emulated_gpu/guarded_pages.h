// Memory of the emulation, shared or of the device: whole pages, with one on either side that
// nobody can touch.
//
// Only one end of the data can be at such a page, as Place says. Beyond that end an access faults
// at once. The rest of the whole pages, on the other side, is slack: what was written there is
// found later (Damage), and what is read there is NaN, in fp32 and in bf16.

#pragma once

#include <cstdint>
#include <optional>

namespace anyorder::kernels::cuda::emulation {

enum class Placement { kAtEnd, kAtBegin };

class GuardedPages {
 public:
  // Room for `bytes` at a multiple of `alignment`, a power of 2 and at most a page. Open; not there
  // (is_mapped) if the system has none.
  GuardedPages(int64_t bytes, int64_t alignment);
  ~GuardedPages();
  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;

  bool is_mapped() const { return mapped_ != nullptr; }
  // Before anything else: chooses data(), up to the alignment, and poisons it and the slack.
  void Place(Placement placement);
  unsigned char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // Whether anybody may touch the data.
  void Protect(bool open);
  // Where slack was written, in bytes from the begin of the data: negative, or bytes() and more.
  // REQUIRES: open.
  std::optional<int64_t> Damage() const;

 private:
  // Of the pages inside.
  unsigned char* begin() const;
  unsigned char* end() const { return begin() + usable_; }

  const int64_t bytes_;
  const int64_t alignment_;
  const int64_t usable_;
  unsigned char* mapped_ = nullptr;
  unsigned char* data_ = nullptr;
};

// Device memory: pages that nobody can touch but while a DeviceAccess lives. 256-byte aligned,
// filled with NaN. Null if the system has none.
void* AllocateFenced(int64_t bytes, Placement placement);
void FreeFenced(void* data);

// Opens all device memory of the process to all its threads: work of a stream has one while it
// runs. They nest. Each looks at its end for writes outside of the blocks, which end the program.
class DeviceAccess {
 public:
  // `kernel`: the one that runs, or null.
  explicit DeviceAccess(const void* kernel);
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;

 private:
  const void* const kernel_;
};

}  // namespace anyorder::kernels::cuda::emulation
