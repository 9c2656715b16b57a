#include "tests/emulated_gpu/block.h"

#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/philox.h"
#include "kernels/cuda/platform/launch_error.h"
#include "tests/emulated_gpu/guarded_pages.h"

namespace anyorder::kernels::cuda::emulation {
namespace {

namespace context = boost::context;

constexpr int kWarp = kLanes;
constexpr size_t kStackBytes = 256 * 1024;
// Of shared memory, as the kernels' declaration of it says
// (kernels/cuda/platform/device/simt_machine.h).
constexpr int64_t kSharedAlignment = 128;
// A held-back warp misses up to this many turns, one in kHoldEvery.
constexpr uint32_t kHoldTurns = 600;
constexpr uint32_t kHoldEvery = 40;

enum class State { kRuns, kAtCollective, kAtBarrier, kAtPairBarrier, kDone };

constexpr int kCopyBytes = 16;
struct PendingCopy {
  unsigned char* destination;
  const void* source;  // null: zeros
  unsigned char value[kCopyBytes];
};

struct Lane {
  context::fiber fiber;
  State state = State::kRuns;
  Collective collective = Collective::kSync;
  Operands operands;
  Site site;            // of the collective or barrier
  bool is_yes = false;  // at a barrier
  std::vector<PendingCopy> open;
  std::vector<std::vector<PendingCopy>> groups;
};

// An instance of a template has a name of its own.
bool IsSame(const Site& a, const Site& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.function_name() == b.function_name() ||
          std::strcmp(a.function_name(), b.function_name()) == 0);
}

std::string TextOf(const Site& site) {
  const char* const slash = std::strrchr(site.file_name(), '/');
  return absl::StrCat(slash == nullptr ? site.file_name() : slash + 1, ":", site.line(), " in ",
                      site.function_name());
}

// Kept from launch to launch: fresh pages from the system take longer than most tests' kernels.
context::pooled_fixedsize_stack& Stacks() {
  static thread_local context::pooled_fixedsize_stack stacks{kStackBytes};
  return stacks;
}

class Block;
thread_local Block* current_block = nullptr;
thread_local Schedule schedule;
thread_local uint64_t launches = 0;
thread_local std::unordered_set<const void*> claims;  // of this launch

class Block {
 public:
  Block(const void* kernel, const Grid& grid, const std::function<void()>& thread,
        RandomStream& random)
      : kernel_(kernel),
        grid_(grid),
        thread_(thread),
        random_(random),
        memory_(grid.shared_bytes, kSharedAlignment),
        lanes_(static_cast<size_t>(grid.threads)),
        held_(static_cast<size_t>(grid.threads / kWarp)) {
    ANYORDER_CHECK(memory_.is_mapped())
        << "no memory for a block of " << grid.shared_bytes << " bytes";
  }

  void Run(const Position& position) {
    here_ = position;
    memory_.Place(schedule.seed != 0 && random_.Below(2) == 0 ? Placement::kAtBegin
                                                              : Placement::kAtEnd);
    current_block = this;
    for (Lane& lane : lanes_) {
      lane = Lane{};
      lane.fiber = context::fiber(std::allocator_arg, Stacks(), [this](context::fiber&& caller) {
        caller_ = std::move(caller);
        thread_();
        lanes_[static_cast<size_t>(here_.thread)].state = State::kDone;
        return std::move(caller_);
      });
    }
    std::fill(held_.begin(), held_.end(), 0u);
    while (!RunTurn()) {
    }
    CheckSlack();
    current_block = nullptr;
  }

  void Wait(State state, const Site& site) {
    Lane& lane = Here();
    const int thread = here_.thread;
    lane.state = state;
    lane.site = site;
    caller_ = std::move(caller_).resume();
    here_.thread = thread;
  }

  Lane& Here() { return lanes_[static_cast<size_t>(here_.thread)]; }
  const Position& position() const { return here_; }
  const Grid& grid() const { return grid_; }
  unsigned char* shared() const { return memory_.data(); }
  bool is_any_yes() const { return is_any_yes_; }

  [[noreturn]] void Fail(const std::string& what) const {
    std::string states;
    for (size_t i = 0; i < lanes_.size(); ++i) states += "rwbpd"[static_cast<int>(lanes_[i].state)];
    std::fprintf(stderr,
                 "emulated kernel %s, block (%d, %d, %d), thread %d: %s\n"
                 "threads (r runs, w waits for its warp, b for its block, p for its pair of warps, "
                 "d done): %s\n",
                 KernelName(kernel_).c_str(), here_.block_x, here_.block_y, here_.block_z,
                 here_.thread, what.c_str(), states.c_str());
    std::abort();
  }

 private:
  // Each warp gets a turn, unless it is held back. True when all threads are done.
  bool RunTurn() {
    bool is_done = true;
    bool has_moved = false;
    for (size_t warp = 0; warp < held_.size(); ++warp) {
      if (schedule.seed != 0 && held_[warp] == 0 && random_.Below(kHoldEvery) == 0)
        held_[warp] = random_.Below(kHoldTurns);
      if (held_[warp] > 0) {
        --held_[warp];
        has_moved = true;
      } else {
        has_moved |= RunWarp(warp);
      }
      is_done &= IsDone(warp);
    }
    has_moved |= ReleaseBarrier(State::kAtBarrier, 0, lanes_.size());
    constexpr size_t kPair = 2 * kWarp;
    for (size_t first = 0; first + kPair <= lanes_.size(); first += kPair)
      has_moved |= ReleaseBarrier(State::kAtPairBarrier, first, kPair);
    if (!is_done && !has_moved)
      Fail("nothing can go on: some threads never reach what the others wait for");
    return is_done;
  }

  bool IsDone(size_t warp) const {
    return std::all_of(lanes_.begin() + static_cast<ptrdiff_t>(warp * kWarp),
                       lanes_.begin() + static_cast<ptrdiff_t>((warp + 1) * kWarp),
                       [](const Lane& lane) { return lane.state == State::kDone; });
  }

  // Of its turns each has an order of lanes of its own: the k-th is (factor * k + first) mod 32,
  // every lane once for an odd factor.
  bool RunWarp(size_t warp) {
    bool has_moved = false;
    const uint32_t draw = schedule.seed == 0 ? 0 : random_.Next();
    const size_t factor = draw | 1;
    const size_t first = draw >> 16;
    for (size_t k = 0; k < kWarp; ++k) {
      const size_t i = warp * kWarp + (factor * k + first) % kWarp;
      if (lanes_[i].state != State::kRuns) continue;
      here_.thread = static_cast<int>(i);
      lanes_[i].fiber = std::move(lanes_[i].fiber).resume();
      has_moved = true;
    }
    return ReleaseWarp(warp) || has_moved;
  }

  bool ReleaseWarp(size_t warp) {
    Lane* const lanes = &lanes_[warp * kWarp];
    const auto waits = [](const Lane& lane) { return lane.state == State::kAtCollective; };
    if (!std::any_of(lanes, lanes + kWarp, waits)) return false;
    here_.thread = static_cast<int>(warp * kWarp);
    Operands operands[kWarp];
    for (int i = 0; i < kWarp; ++i) {
      if (!waits(lanes[i])) Fail(absl::StrCat("lane ", i, " is not at the collective of its warp"));
      if (lanes[i].collective != lanes[0].collective || !IsSame(lanes[i].site, lanes[0].site))
        Fail(Different("lanes 0 and ", i, "collectives", lanes[0].site, lanes[i].site));
      operands[i] = lanes[i].operands;
    }
    Execute(lanes[0].collective, operands);
    for (int i = 0; i < kWarp; ++i) lanes[i].state = State::kRuns;
    return true;
  }

  static std::string Different(const char* who, size_t other, const char* what, const Site& a,
                               const Site& b) {
    return absl::StrCat(who, other, " are at different ", what, ": ", TextOf(a), "; ", TextOf(b));
  }

  // Of the `count` threads from `first` on, if all of them are at their barrier of this kind.
  bool ReleaseBarrier(State kind, size_t first, size_t count) {
    Lane* const lanes = &lanes_[first];
    bool somebody_waits = false;
    for (size_t i = 0; i < count; ++i) {
      if (lanes[i].state != kind && lanes[i].state != State::kDone) return false;
      somebody_waits |= lanes[i].state == kind;
    }
    if (!somebody_waits) return false;
    for (size_t i = 0; i < count; ++i) {
      if (lanes[i].state == State::kDone)
        Fail("a barrier that threads which ended will never reach");
      if (!IsSame(lanes[i].site, lanes[0].site))
        Fail(Different("threads 0 and ", i, "barriers", lanes[0].site, lanes[i].site));
    }
    // A pair's barrier has no answer, and must not take that of the block's before all have read
    // it.
    if (kind == State::kAtBarrier)
      is_any_yes_ = std::any_of(lanes, lanes + count, [](const Lane& lane) { return lane.is_yes; });
    for (size_t i = 0; i < count; ++i) lanes[i].state = State::kRuns;
    return true;
  }

  void CheckSlack() const {
    if (const std::optional<int64_t> place = memory_.Damage(); place.has_value())
      Fail(absl::StrCat("some thread wrote at byte ", *place, " of the block's ",
                        grid_.shared_bytes, " bytes of shared memory"));
  }

  const void* const kernel_;
  const Grid grid_;
  const std::function<void()>& thread_;
  RandomStream& random_;
  GuardedPages memory_;
  std::vector<Lane> lanes_;
  std::vector<uint32_t> held_;  // turns that each warp misses from now on
  context::fiber caller_;
  Position here_;
  bool is_any_yes_ = false;  // of the last barrier
};

constexpr unsigned char kPoison[kCopyBytes] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                               0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

// A GPU reads the source and writes the destination at any time between the call and the wait.
void Arrive(const PendingCopy& copy) {
  if (copy.source != nullptr && std::memcmp(copy.source, copy.value, kCopyBytes) != 0)
    Fail("the source of an asynchronous copy changed before the wait for it");
  if (std::memcmp(copy.destination, kPoison, kCopyBytes) != 0)
    Fail("the destination of an asynchronous copy was written before the wait for it");
  std::memcpy(copy.destination, copy.value, kCopyBytes);
}

std::vector<Position> BlocksOf(const Grid& grid, RandomStream& random) {
  std::vector<Position> blocks;
  for (int z = 0; z < grid.z; ++z) {
    for (int y = 0; y < grid.y; ++y) {
      for (int x = 0; x < grid.x; ++x) blocks.push_back({0, x, y, z});
    }
  }
  if (schedule.seed == 0) return blocks;
  for (size_t i = blocks.size(); i > 1; --i)
    std::swap(blocks[i - 1], blocks[random.Below(static_cast<uint32_t>(i))]);
  return blocks;
}

}  // namespace

void SetSchedule(const Schedule& wanted) {
  schedule = wanted;
  launches = 0;
}

void Run(const void* kernel, const Grid& grid, const std::function<void()>& thread) {
  ANYORDER_CHECK(current_block == nullptr) << "a launch inside a kernel";
  ReportFaults();
  claims.clear();
  RandomStream random(schedule.seed, RandomPurpose::kPermutation, launches++, 0);
  Block block(kernel, grid, thread, random);
  for (const Position& position : BlocksOf(grid, random)) block.Run(position);
}

bool IsInKernel() { return current_block != nullptr; }
Position Here() { return current_block->position(); }
const Grid& CurrentGrid() { return current_block->grid(); }
unsigned char* SharedMemoryOfBlock() { return current_block->shared(); }

void MeetWarp(Collective collective, const Operands& operands, const Site& site) {
  Lane& lane = current_block->Here();
  lane.collective = collective;
  lane.operands = operands;
  current_block->Wait(State::kAtCollective, site);
}

bool MeetBlock(bool value, const Site& site) {
  current_block->Here().is_yes = value;
  current_block->Wait(State::kAtBarrier, site);
  return current_block->is_any_yes();
}

void MeetPair(const Site& site) { current_block->Wait(State::kAtPairBarrier, site); }

void CopyLater(void* shared, const void* global, bool valid) {
  CheckShared(shared, "CopyAsync16 to");
  CheckAligned(global, kCopyBytes, "CopyAsync16 from");
  PendingCopy copy{static_cast<unsigned char*>(shared), valid ? global : nullptr, {}};
  if (valid) std::memcpy(copy.value, global, kCopyBytes);
  std::memcpy(shared, kPoison, kCopyBytes);
  current_block->Here().open.push_back(copy);
}

void CommitCopyGroup() {
  Lane& lane = current_block->Here();
  lane.groups.push_back(std::move(lane.open));
  lane.open.clear();
}

void WaitForCopyGroups(int newest) {
  auto& groups = current_block->Here().groups;
  while (groups.size() > static_cast<size_t>(newest)) {
    for (const PendingCopy& copy : groups.front()) Arrive(copy);
    groups.erase(groups.begin());
  }
}

void Claim(const void* place) {
  if (!claims.insert(place).second)
    current_block->Fail("two threads claim the same place: on a GPU one of their updates is lost");
}

void Fail(const char* what) {
  if (current_block != nullptr) current_block->Fail(what);
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

void CheckShared(const void* pointer, const char* what) {
  CheckAligned(pointer, kCopyBytes, what);
  const auto place = static_cast<const unsigned char*>(pointer) - current_block->shared();
  if (place < 0 || place + int64_t{kCopyBytes} > current_block->grid().shared_bytes)
    current_block->Fail(absl::StrCat(what, " an address outside the block's shared memory"));
}

void CheckAligned(const void* pointer, size_t bytes, const char* what) {
  if (reinterpret_cast<uintptr_t>(pointer) % bytes != 0)
    current_block->Fail(absl::StrCat(what, " an address that is no multiple of ", bytes));
}

}  // namespace anyorder::kernels::cuda::emulation
