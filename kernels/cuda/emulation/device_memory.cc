#include "kernels/cuda/emulation/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "core/base/check.h"

namespace anyorder::kernels::cuda::emulation {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kAlignment = 256;

struct Block {
  char* mapped;  // a page, the usable ones, a page
  int64_t usable;
};

struct Fence {
  std::mutex mutex;
  std::map<void*, Block> blocks;
  int accesses = 0;
};
Fence& TheFence() {
  static auto* fence = new Fence;
  return *fence;
}

void Protect(const Block& block, bool open) {
  ANYORDER_CHECK(::mprotect(block.mapped + kPage,
                            static_cast<size_t>(block.usable),
                            open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0)
      << "mprotect of emulated device memory; too many blocks (vm.max_map_count)?";
}

}  // namespace

void* AllocateFenced(int64_t bytes) {
  const int64_t size = std::max<int64_t>(1, (bytes + kAlignment - 1) / kAlignment) * kAlignment;
  const int64_t usable = (size + kPage - 1) / kPage * kPage;
  void* mapped = ::mmap(nullptr,
                        static_cast<size_t>(usable + 2 * kPage),
                        PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                        -1,
                        0);
  if (mapped == MAP_FAILED) return nullptr;
  const Block block{static_cast<char*>(mapped), usable};
  Protect(block, true);
  void* data = block.mapped + kPage + usable - size;
  std::memset(data, 0xff, static_cast<size_t>(size));
  Fence& fence = TheFence();
  const std::lock_guard<std::mutex> lock(fence.mutex);
  if (fence.accesses == 0) Protect(block, false);
  fence.blocks[data] = block;
  return data;
}

void FreeFenced(void* data) {
  Fence& fence = TheFence();
  const std::lock_guard<std::mutex> lock(fence.mutex);
  const auto block = fence.blocks.find(data);
  ANYORDER_CHECK(block != fence.blocks.end()) << "freed what is no block of device memory";
  ::munmap(block->second.mapped, static_cast<size_t>(block->second.usable + 2 * kPage));
  fence.blocks.erase(block);
}

DeviceAccess::DeviceAccess() {
  Fence& fence = TheFence();
  const std::lock_guard<std::mutex> lock(fence.mutex);
  if (fence.accesses++ > 0) return;
  for (const auto& [data, block] : fence.blocks)
    Protect(block, true);
}

DeviceAccess::~DeviceAccess() {
  Fence& fence = TheFence();
  const std::lock_guard<std::mutex> lock(fence.mutex);
  if (--fence.accesses > 0) return;
  for (const auto& [data, block] : fence.blocks)
    Protect(block, false);
}

}  // namespace anyorder::kernels::cuda::emulation
