#include "tests/testing/fenced_memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>

#include "core/base/check.h"
#include "core/base/status.h"

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
  const int fd = ::memfd_create("fenced", 0);
  ANYORDER_CHECK(fd >= 0 && ::ftruncate(fd, kRoom) == 0) << "no fenced memory";
  const auto map = [fd](int access) {
    void* const mapped = ::mmap(nullptr, kRoom, access, MAP_SHARED | MAP_NORESERVE, fd, 0);
    ANYORDER_CHECK(mapped != MAP_FAILED) << "no addresses for fenced memory";
    return static_cast<char*>(mapped);
  };
  fenced_ = map(PROT_NONE);
  open_ = map(PROT_READ | PROT_WRITE);
  ::close(fd);
  Register(nullptr, fenced_);
  InstallHandler();
}

FencedMemory::~FencedMemory() {
  ::munmap(fenced_, kRoom);
  ::munmap(open_, kRoom);
  Register(fenced_, nullptr);
}

absl::StatusOr<void*> FencedMemory::Allocate(int64_t bytes) {
  const MutexLock lock(&mutex_);
  if (bytes > kRoom - used_ - kPage)
    return ResourceExhausted("allocate ", bytes, " bytes within a fence");
  char* const data = fenced_ + used_;
  used_ += (bytes / kPage + 1) * kPage;
  blocks_[data] = bytes;
  return data;
}

void FencedMemory::Free(void* data) {
  const MutexLock lock(&mutex_);
  const auto block = blocks_.find(static_cast<char*>(data));
  ANYORDER_CHECK(block != blocks_.end()) << "freed what is no block";
  // The addresses are not used again.
  ::madvise(open_ + (block->first - fenced_),
            static_cast<size_t>((block->second / kPage + 1) * kPage), MADV_REMOVE);
  blocks_.erase(block);
}

absl::StatusOr<std::unique_ptr<kernels::Buffer>> FencedMemory::AllocateStaging(
    std::shared_ptr<FencedMemory> memory, int64_t bytes) {
  ASSIGN_OR_RETURN(void* const data, memory->Allocate(bytes));
  const char* const fenced = memory->fenced_;
  char* const open = memory->open_ + (static_cast<char*>(data) - fenced);
  return std::make_unique<StagingBuffer>(std::move(memory), data, bytes, open);
}

void* FencedMemory::Open(const void* data, int64_t bytes) const {
  if (data == nullptr) return nullptr;
  const MutexLock lock(&mutex_);
  const auto* begin = static_cast<const char*>(data);
  if (begin >= open_ && begin < open_ + kRoom) begin = fenced_ + (begin - open_);
  const auto after = blocks_.upper_bound(begin);
  const auto block = after == blocks_.begin() ? blocks_.end() : std::prev(after);
  ANYORDER_CHECK(block != blocks_.end() && begin + bytes <= block->first + block->second)
      << bytes << " bytes of an argument are no device memory";
  return open_ + (begin - fenced_);
}

bool FencedMemory::Touches(const void* data, int64_t bytes) const {
  const auto* const begin = static_cast<const char*>(data);
  return begin < fenced_ + kRoom && begin + bytes > fenced_;
}

}  // namespace anyorder::testing
