#include "kernels/cuda/emulation/block.h"

#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/dtype.h"
#include "core/base/philox.h"

namespace anyorder::kernels::cuda::emulation {
namespace {

namespace context = boost::context;

constexpr int kWarp = 32;
constexpr size_t kStackBytes = 256 * 1024;
constexpr size_t kPage = 4096;
// A held-back warp misses up to this many turns, one in kHoldEvery.
constexpr uint32_t kHoldTurns = 600;
constexpr uint32_t kHoldEvery = 40;

enum class State { kRuns, kAtCollective, kAtBarrier, kDone };
enum class Vote { kNone, kNo, kYes };

struct PendingCopy {
  unsigned char* destination;
  unsigned char value[16];
};

struct Lane {
  context::fiber fiber;
  State state = State::kRuns;
  Collective collective = Collective::kSync;
  const void* in = nullptr;
  void* out = nullptr;
  Vote vote = Vote::kNone;  // at a barrier
  std::vector<PendingCopy> open;
  std::vector<std::vector<PendingCopy>> groups;
};

float Bf16ToFloat(uint32_t bits) {
  BFloat16 value;
  value.bits = static_cast<uint16_t>(bits);
  return static_cast<float>(value);
}

// Shared memory of one block: NaN, and at its end a page that faults.
class GuardedMemory {
 public:
  explicit GuardedMemory(int64_t bytes) {
    bytes_ = (static_cast<size_t>(bytes) + 127) / 128 * 128;
    const size_t usable = (bytes_ + kPage - 1) / kPage * kPage;
    mapped_ = usable + kPage;
    void* memory =
        ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ANYORDER_CHECK(memory != MAP_FAILED) << "no memory for a block of " << bytes << " bytes";
    base_ = static_cast<unsigned char*>(memory);
    ANYORDER_CHECK(::mprotect(base_ + usable, kPage, PROT_NONE) == 0);
    begin_ = base_ + usable - bytes_;
  }
  ~GuardedMemory() { ::munmap(base_, mapped_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  void Poison() { std::memset(begin_, 0xff, bytes_); }
  unsigned char* begin() const { return begin_; }

 private:
  size_t bytes_ = 0;
  size_t mapped_ = 0;
  unsigned char* base_ = nullptr;
  unsigned char* begin_ = nullptr;
};

class Block;
thread_local Block* current_block = nullptr;
thread_local Schedule schedule;
thread_local uint64_t launches = 0;
thread_local std::unordered_set<const void*> claims;  // of this launch

class Block {
 public:
  Block(const Grid& grid, const std::function<void()>& thread, RandomStream& random)
      : grid_(grid),
        thread_(thread),
        random_(random),
        memory_(grid.shared_bytes),
        lanes_(static_cast<size_t>(grid.threads)),
        held_(static_cast<size_t>(grid.threads / kWarp)) {}

  void Run(const Position& position) {
    here_ = position;
    memory_.Poison();
    current_block = this;
    for (Lane& lane : lanes_) {
      lane = Lane{};
      lane.fiber = context::fiber(std::allocator_arg, stacks_, [this](context::fiber&& caller) {
        caller_ = std::move(caller);
        thread_();
        lanes_[static_cast<size_t>(here_.thread)].state = State::kDone;
        return std::move(caller_);
      });
    }
    std::fill(held_.begin(), held_.end(), 0u);
    while (!RunTurn()) {
    }
    current_block = nullptr;
  }

  void Wait(State state) {
    Lane& lane = Here();
    const int thread = here_.thread;
    lane.state = state;
    caller_ = std::move(caller_).resume();
    here_.thread = thread;
  }

  Lane& Here() { return lanes_[static_cast<size_t>(here_.thread)]; }
  const Position& position() const { return here_; }
  const Grid& grid() const { return grid_; }
  unsigned char* shared() const { return memory_.begin(); }
  bool is_any_yes() const { return is_any_yes_; }

  [[noreturn]] void Fail(const std::string& what) const {
    std::string states;
    for (size_t i = 0; i < lanes_.size(); ++i)
      states += "rwbd"[static_cast<int>(lanes_[i].state)];
    std::fprintf(stderr,
                 "emulated kernel, block (%d, %d, %d), thread %d: %s\n"
                 "threads (r runs, w waits for its warp, b for its block, d done): %s\n",
                 here_.block_x,
                 here_.block_y,
                 here_.block_z,
                 here_.thread,
                 what.c_str(),
                 states.c_str());
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
    has_moved |= ReleaseBarrier();
    if (!is_done && !has_moved)
      Fail("nothing can go on: some threads never reach what the others wait for");
    return is_done;
  }

  bool IsDone(size_t warp) const {
    return std::all_of(lanes_.begin() + static_cast<ptrdiff_t>(warp * kWarp),
                       lanes_.begin() + static_cast<ptrdiff_t>((warp + 1) * kWarp),
                       [](const Lane& lane) { return lane.state == State::kDone; });
  }

  bool RunWarp(size_t warp) {
    bool has_moved = false;
    for (size_t i = warp * kWarp; i < (warp + 1) * kWarp; ++i) {
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
    for (int i = 0; i < kWarp; ++i) {
      if (!waits(lanes[i])) Fail(absl::StrCat("lane ", i, " is not at the collective of its warp"));
      if (lanes[i].collective != lanes[0].collective) {
        Fail(absl::StrCat("lanes 0 and ", i, " are at different collectives"));
      }
    }
    Execute(lanes);
    for (int i = 0; i < kWarp; ++i)
      lanes[i].state = State::kRuns;
    return true;
  }

  bool ReleaseBarrier() {
    bool somebody_waits = false;
    for (const Lane& lane : lanes_) {
      if (lane.state == State::kRuns || lane.state == State::kAtCollective) return false;
      somebody_waits |= lane.state == State::kAtBarrier;
    }
    if (!somebody_waits) return false;
    for (const Lane& lane : lanes_) {
      if (lane.state == State::kDone) Fail("a barrier that threads which ended will never reach");
      if ((lane.vote == Vote::kNone) != (lanes_[0].vote == Vote::kNone))
        Fail("threads are at barriers of different kinds");
    }
    is_any_yes_ = std::any_of(
        lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.vote == Vote::kYes; });
    for (Lane& lane : lanes_)
      lane.state = State::kRuns;
    return true;
  }

  static void Execute(Lane* lanes) {
    switch (lanes[0].collective) {
      case Collective::kSync:
        return;
      case Collective::kShuffleXor:
        return Shuffle(lanes);
      case Collective::kLoadMatrices:
        return LoadMatrixRows(lanes, false);
      case Collective::kLoadMatricesTransposed:
        return LoadMatrixRows(lanes, true);
      case Collective::kMultiplyAccumulate:
        return Multiply(lanes);
    }
  }

  static void Shuffle(Lane* lanes) {
    for (int i = 0; i < kWarp; ++i) {
      const auto* in = static_cast<const ShuffleIn*>(lanes[i].in);
      const auto* other = static_cast<const ShuffleIn*>(lanes[(i ^ in->mask) % kWarp].in);
      *static_cast<uint64_t*>(lanes[i].out) = other->bits;
    }
  }

  // PTX ISA, "ldmatrix": lane l holds elements (l / 4, 2 (l % 4) + {0, 1}) of each matrix, or of its transpose.
  static void LoadMatrixRows(Lane* lanes, bool is_transposed) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      for (int i = 0; i < kWarp; ++i) {
        uint32_t packed = 0;
        for (int e = 0; e < 2; ++e) {
          const int major = i / 4;
          const int minor = 2 * (i % 4) + e;
          const int row = is_transposed ? minor : major;
          const int column = is_transposed ? major : minor;
          const auto* elements = static_cast<const uint16_t*>(lanes[8 * matrix + row].in);
          packed |= static_cast<uint32_t>(elements[column]) << (16 * e);
        }
        static_cast<uint32_t*>(lanes[i].out)[matrix] = packed;
      }
    }
  }

  // PTX ISA, "mma.m16n8k16": places of a, b and c in the lanes' registers. Products are summed in increasing k; hardware does not say
  // how it does.
  static void Multiply(Lane* lanes) {
    float a[16][16];
    float b[16][8];
    for (int i = 0; i < kWarp; ++i) {
      const auto* in = static_cast<const MultiplyIn*>(lanes[i].in);
      for (int e = 0; e < 2; ++e) {
        for (int part = 0; part < 4; ++part)
          a[i / 4 + 8 * (part & 1)][2 * (i % 4) + e + 8 * (part >> 1)] =
              Bf16ToFloat(in->a[part] >> (16 * e));
        for (int part = 0; part < 2; ++part)
          b[2 * (i % 4) + e + 8 * part][i / 4] = Bf16ToFloat(in->b[part] >> (16 * e));
      }
    }
    for (int i = 0; i < kWarp; ++i) {
      auto* c = static_cast<float*>(lanes[i].out);
      for (int part = 0; part < 4; ++part) {
        const int row = i / 4 + 8 * (part >> 1);
        const int column = 2 * (i % 4) + (part & 1);
        float sum = c[part];
        for (int k = 0; k < 16; ++k)
          sum += a[row][k] * b[k][column];
        c[part] = sum;
      }
    }
  }

  const Grid grid_;
  const std::function<void()>& thread_;
  RandomStream& random_;
  GuardedMemory memory_;
  context::pooled_fixedsize_stack stacks_{kStackBytes};
  std::vector<Lane> lanes_;
  std::vector<uint32_t> held_;  // turns that each warp misses from now on
  context::fiber caller_;
  Position here_;
  bool is_any_yes_ = false;  // of the last barrier
};

std::vector<Position> BlocksOf(const Grid& grid, RandomStream& random) {
  std::vector<Position> blocks;
  for (int z = 0; z < grid.z; ++z) {
    for (int y = 0; y < grid.y; ++y) {
      for (int x = 0; x < grid.x; ++x)
        blocks.push_back({0, x, y, z});
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

void Run(const Grid& grid, const std::function<void()>& thread) {
  ANYORDER_CHECK(grid.threads > 0 && grid.threads % kWarp == 0 && grid.threads <= 1024)
      << grid.threads << " threads a block";
  ANYORDER_CHECK(current_block == nullptr) << "a launch inside a kernel";
  claims.clear();
  RandomStream random(schedule.seed, RandomPurpose::kPermutation, launches++, 0);
  Block block(grid, thread, random);
  for (const Position& position : BlocksOf(grid, random))
    block.Run(position);
}

Position Here() {
  return current_block->position();
}
const Grid& CurrentGrid() {
  return current_block->grid();
}
unsigned char* SharedMemoryOfBlock() {
  return current_block->shared();
}

void MeetWarp(Collective collective, const void* in, void* out) {
  Lane& lane = current_block->Here();
  lane.collective = collective;
  lane.in = in;
  lane.out = out;
  current_block->Wait(State::kAtCollective);
}

void MeetBlock() {
  current_block->Here().vote = Vote::kNone;
  current_block->Wait(State::kAtBarrier);
}

bool MeetBlockOr(bool value) {
  current_block->Here().vote = value ? Vote::kYes : Vote::kNo;
  current_block->Wait(State::kAtBarrier);
  return current_block->is_any_yes();
}

void CopyLater(void* shared, const void* global, bool valid) {
  CheckAligned(shared, 16, "CopyAsync16 to");
  if (valid) CheckAligned(global, 16, "CopyAsync16 from");
  PendingCopy copy{static_cast<unsigned char*>(shared), {}};
  if (valid) std::memcpy(copy.value, global, sizeof copy.value);
  std::memset(shared, 0xff, sizeof copy.value);
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
    for (const PendingCopy& copy : groups.front())
      std::memcpy(copy.destination, copy.value, sizeof copy.value);
    groups.erase(groups.begin());
  }
}

void Claim(const void* place) {
  if (!claims.insert(place).second)
    current_block->Fail("two threads claim the same place: on a GPU one of their updates is lost");
}

void Fail(const char* what) {
  current_block->Fail(what);
}

void CheckAligned(const void* pointer, size_t bytes, const char* what) {
  if (reinterpret_cast<uintptr_t>(pointer) % bytes != 0)
    current_block->Fail(absl::StrCat(what, " an address that is no multiple of ", bytes));
}

}  // namespace anyorder::kernels::cuda::emulation
