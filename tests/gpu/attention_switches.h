// The switches of attention_bisection.h: their problems, and where kernels compute what.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/gpu/attention_verdict.h"
#include "tests/kernels/attention_case.h"

namespace anyorder::testing {

// Each has all features of those before it.
enum Level {
  kOneTile,
  kSeveralTiles,
  kMixedVisibility,
  kPosition,
  kBiases,
  kSegments,
  kMemory,
  kQueries,
  kLanes,
  kXlnet,
  kDropout,
  kBf16,  // of the general kernels, which compute in fp32 until here
};
struct AttentionSwitch {
  Level level;
  bool is_ring;
  bool is_backward;

  std::string name() const;
};

// General kernels forward and backward, then the ring kernels, each from the simplest on.
std::vector<AttentionSwitch> AllSwitches();

// The switch's problem; the ring kernels have all its rows if it is in bf16, but on kBf16's level
// none.
kernels::testing::AttentionCase CaseOf(Level level);

// What the rows of a tensor are.
enum class Rows { kQueries, kKeys, kDistances, kNone };

// Where the kernels compute each element, and how rows and keys see each other.
class Places {
 public:
  template <typename T>
  Places(const kernels::testing::AttentionData<T, float>& data, bool is_ring)
      : shape_(data.shape), is_ring_(is_ring), has_position_(!data.relative.empty()) {
    CountVisible(data.Inputs());
  }

  const kernels::AttentionShape& shape() const { return shape_; }

  // Sets what CheckedElement says of the place of row `row` of a tensor.
  void Locate(Rows rows, int64_t row, CheckedElement* element) const;

 private:
  void CountVisible(const kernels::AttentionInputs& in);
  void LocateQuery(int64_t row, CheckedElement* element) const;

  kernels::AttentionShape shape_;
  bool is_ring_;
  bool has_position_;
  std::vector<int64_t> seen_by_row_, seen_of_key_;  // how many they see, and are seen by
};

}  // namespace anyorder::testing
