#include "tests/testing/fenced_memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "core/base/check.h"

namespace anyorder::testing {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kRoom = int64_t{1} << 32;  // addresses, not memory

// Where fenced memory is, for the signal handler.
std::array<std::atomic<char*>, 64> places{};

bool IsFenced(const void* address) {
  const auto* const byte = static_cast<const char*>(address);
  return std::any_of(places.begin(), places.end(), [byte](const std::atomic<char*>& place) {
    const char* const begin = place.load();
    return begin != nullptr && byte >= begin && byte < begin + kRoom;
  });
}

void OnSegmentationFault(int signal, siginfo_t* info, void*) {
  if (IsFenced(info->si_addr)) {
    constexpr char kMessage[] = "host code touches device memory\n";
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  }
  // The instruction faults again and ends the process.
  ::signal(signal, SIG_DFL);
}

void InstallHandler() {
  struct sigaction action = {};
  action.sa_sigaction = OnSegmentationFault;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, nullptr);
}

void Register(char* from, char* to) {
  for (std::atomic<char*>& place : places) {
    char* expected = from;
    if (place.compare_exchange_strong(expected, to)) return;
  }
  ANYORDER_CHECK(false) << "more fenced memories at once than places";
}

}  // namespace

FencedMemory::FencedMemory() {
  void* const mapped =
      ::mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ANYORDER_CHECK(mapped != MAP_FAILED) << "no addresses for fenced memory";
  begin_ = static_cast<char*>(mapped);
  Register(nullptr, begin_);
  InstallHandler();
}

FencedMemory::~FencedMemory() {
  ::munmap(begin_, kRoom);
  Register(begin_, nullptr);
}

void* FencedMemory::Allocate(int64_t bytes) {
  const MutexLock lock(&mutex_);
  ANYORDER_CHECK(openings_ == 0) << "memory is allocated while an operation runs";
  const int64_t size = (bytes / kPage + 1) * kPage;
  if (size > kRoom - used_) return nullptr;
  char* const data = begin_ + used_;
  used_ += size;
  blocks_[data] = bytes;
  return data;
}

void FencedMemory::Free(void* data) {
  const MutexLock lock(&mutex_);
  const auto block = blocks_.find(static_cast<char*>(data));
  ANYORDER_CHECK(block != blocks_.end()) << "freed what is no block";
  // The addresses are not used again.
  ::madvise(data, static_cast<size_t>((block->second / kPage + 1) * kPage), MADV_DONTNEED);
  blocks_.erase(block);
}

bool FencedMemory::Contains(const void* data, int64_t bytes) const {
  const MutexLock lock(&mutex_);
  char* const begin = static_cast<char*>(const_cast<void*>(data));
  auto block = blocks_.upper_bound(begin);
  if (block == blocks_.begin()) return false;
  --block;
  return begin + bytes <= block->first + block->second;
}

bool FencedMemory::Touches(const void* data, int64_t bytes) const {
  const auto* const begin = static_cast<const char*>(data);
  return begin < begin_ + kRoom && begin + bytes > begin_;
}

void FencedMemory::Open() {
  const MutexLock lock(&mutex_);
  if (openings_++ == 0) Protect(PROT_READ | PROT_WRITE);
}

void FencedMemory::Close() {
  const MutexLock lock(&mutex_);
  if (--openings_ == 0) Protect(PROT_NONE);
}

void FencedMemory::Protect(int access) const {
  if (used_ == 0) return;
  ANYORDER_CHECK(::mprotect(begin_, static_cast<size_t>(used_), access) == 0)
      << "mprotect of " << used_ << " bytes";
}

}  // namespace anyorder::testing
