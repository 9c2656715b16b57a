#include "kernels/cuda/platform/device_memory.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "core/base/check.h"
#include "kernels/cuda/platform/launch_error.h"

namespace anyorder::kernels::cuda::emulation {
namespace {

constexpr int64_t kAlignment = 256;

struct Fence {
  std::mutex mutex;
  std::map<void*, std::unique_ptr<GuardedPages>> blocks;
  int accesses = 0;
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
  const std::lock_guard<std::mutex> lock(fence.mutex);
  if (fence.accesses == 0) block->Protect(false);
  fence.blocks[data] = std::move(block);
  return data;
}

void FreeFenced(void* data) {
  Fence& fence = TheFence();
  const std::lock_guard<std::mutex> lock(fence.mutex);
  ANYORDER_CHECK(fence.blocks.erase(data) == 1) << "freed what is no block of device memory";
}

DeviceAccess::DeviceAccess(const void* kernel) : kernel_(kernel) {
  Fence& fence = TheFence();
  const std::lock_guard<std::mutex> lock(fence.mutex);
  if (fence.accesses++ > 0) return;
  for (const auto& [data, block] : fence.blocks) block->Protect(true);
}

DeviceAccess::~DeviceAccess() {
  Fence& fence = TheFence();
  const std::lock_guard<std::mutex> lock(fence.mutex);
  for (const auto& [data, block] : fence.blocks) CheckSlack(*block, kernel_);
  if (--fence.accesses > 0) return;
  for (const auto& [data, block] : fence.blocks) block->Protect(false);
}

}  // namespace anyorder::kernels::cuda::emulation
