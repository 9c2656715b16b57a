#include "tests/emulated_gpu/guarded_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>

#include "core/base/check.h"
#include "core/base/mutex.h"
#include "kernels/cuda/platform/launch_error.h"

namespace anyorder::kernels::cuda::emulation {
namespace {

constexpr int64_t kPage = 4096;

constexpr int64_t RoundUp(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

// What slack holds from an even address on: no number, and rarely what a kernel writes.
const unsigned char* SlackPattern() {
  static const auto pattern = [] {
    std::array<unsigned char, 2 * kPage> bytes;
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = i % 2 == 0 ? 0xa5 : 0xff;
    return bytes;
  }();
  return pattern.data();
}
const unsigned char* SlackFrom(const unsigned char* address) {
  return SlackPattern() + reinterpret_cast<uintptr_t>(address) % 2;
}
void FillSlack(unsigned char* from, const unsigned char* to) {
  std::memcpy(from, SlackFrom(from), static_cast<size_t>(to - from));
}
// Null if all is as it was filled.
const unsigned char* FindDamage(const unsigned char* from, const unsigned char* to) {
  if (std::memcmp(from, SlackFrom(from), static_cast<size_t>(to - from)) == 0) return nullptr;
  return std::mismatch(from, to, SlackFrom(from)).first;
}

}  // namespace

GuardedPages::GuardedPages(int64_t bytes, int64_t alignment)
    : bytes_(bytes), alignment_(alignment), usable_(RoundUp(bytes, kPage)) {
  void* const mapped = ::mmap(nullptr, static_cast<size_t>(usable_ + 2 * kPage), PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return;
  mapped_ = static_cast<unsigned char*>(mapped);
  Protect(true);
}

GuardedPages::~GuardedPages() {
  if (mapped_ != nullptr) ::munmap(mapped_, static_cast<size_t>(usable_ + 2 * kPage));
}

void GuardedPages::Place(Placement placement) {
  data_ = placement == Placement::kAtEnd ? end() - RoundUp(bytes_, alignment_) : begin();
  std::memset(data_, 0xff, static_cast<size_t>(bytes_));
  FillSlack(begin(), data_);
  FillSlack(data_ + bytes_, end());
}

void GuardedPages::Protect(bool open) {
  if (usable_ == 0) return;
  ANYORDER_CHECK(::mprotect(begin(), static_cast<size_t>(usable_),
                            open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0)
      << "mprotect of emulated memory; too many blocks (vm.max_map_count)?";
}

std::optional<int64_t> GuardedPages::Damage() const {
  const unsigned char* place = FindDamage(begin(), data_);
  if (place == nullptr) place = FindDamage(data_ + bytes_, end());
  if (place == nullptr) return std::nullopt;
  return place - data_;
}

unsigned char* GuardedPages::begin() const { return mapped_ + kPage; }

namespace {

constexpr int64_t kAlignment = 256;

struct Fence {
  Mutex mutex;
  std::map<void*, std::unique_ptr<GuardedPages>> blocks ABSL_GUARDED_BY(mutex);
  int accesses ABSL_GUARDED_BY(mutex) = 0;
};
Fence& TheFence() {
  static auto* fence = new Fence;
  return *fence;
}

void CheckSlack(const GuardedPages& block, const void* kernel) {
  const std::optional<int64_t> place = block.Damage();
  ANYORDER_CHECK(!place.has_value())
      << (kernel == nullptr ? "a copy or product" : KernelName(kernel))
      << ", or work of another thread, wrote at byte " << *place << " of a block of "
      << block.bytes() << " bytes of device memory";
}

}  // namespace

void* AllocateFenced(int64_t bytes, Placement placement) {
  auto block = std::make_unique<GuardedPages>(bytes, kAlignment);
  if (!block->is_mapped()) return nullptr;
  block->Place(placement);
  void* const data = block->data();
  Fence& fence = TheFence();
  const MutexLock lock(&fence.mutex);
  if (fence.accesses == 0) block->Protect(false);
  fence.blocks[data] = std::move(block);
  return data;
}

void FreeFenced(void* data) {
  Fence& fence = TheFence();
  const MutexLock lock(&fence.mutex);
  ANYORDER_CHECK(fence.blocks.erase(data) == 1) << "freed what is no block of device memory";
}

DeviceAccess::DeviceAccess(const void* kernel) : kernel_(kernel) {
  Fence& fence = TheFence();
  const MutexLock lock(&fence.mutex);
  if (fence.accesses++ > 0) return;
  for (const auto& [data, block] : fence.blocks) block->Protect(true);
}

DeviceAccess::~DeviceAccess() {
  Fence& fence = TheFence();
  const MutexLock lock(&fence.mutex);
  for (const auto& [data, block] : fence.blocks) CheckSlack(*block, kernel_);
  if (--fence.accesses > 0) return;
  for (const auto& [data, block] : fence.blocks) block->Protect(false);
}

}  // namespace anyorder::kernels::cuda::emulation
