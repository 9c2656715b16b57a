// Weights of one model as the start of another: the same model, with other heads, or one that is
// larger in a way the first can fill (Longformer, Beltagy et al. 2020, sections 4.2.2 and 5): more
// learned positions, global slots with projections of their own. `train.init_from` and `anyorder
// import --format run` both go by such a plan (core/train/state/saved_weights.h).

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/fields.h"
#include "core/network/tensors/parameters.h"

namespace anyorder {

// What the rows of a longer table of positions that the shorter one does not have begin with: its
// rows again, from the first, as often as needed, so that each stretch of the text is known at
// once; or initial values, as in a model from scratch.
enum class NewPositions { kCopy, kRandom };
constexpr auto SpellingsOf(NewPositions) { return std::array{"copy", "random"}; }

struct TransferPlan {
  // Elements [begin, end) of the new flat space are those from `source` on of the old one.
  struct Piece {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t source = 0;
  };
  std::vector<Piece> pieces;     // in the order of the new space; all else keeps its initial value
  int64_t positions_before = 0;  // rows of the table, 0 without one
  int64_t positions_after = 0;
  int64_t projections_copied = 0;        // global ones, from q, k or v of their layer
  std::vector<std::string> initialised;  // new parameters that the old model does not have
  std::vector<std::string> left_out;     // old ones that the new model does not have
};

// Every parameter of the new model is the old one of that name and shape, but: rows of a longer
// position table (NewPositions); global_q, global_k, global_v and their biases, where the old model
// has none: copies of q, k, v; heads, where it has none: initial values. Of the old model heads and
// global projections may be left out. Everything else that differs, and a shorter table, is
// InvalidArgument, naming every such parameter and both shapes.
absl::StatusOr<TransferPlan> PlanTransfer(const std::vector<ParameterInfo>& from,
                                          const ParameterLayout& to,
                                          NewPositions positions = NewPositions::kCopy);

// Copies `count` elements of the old flat space from `source` on to `out`.
using ReadOld = absl::FunctionRef<absl::Status(int64_t source, int64_t count, float* out)>;

// Overwrites what the plan has of elements [begin, end) of the new flat space, which lie at `out`.
absl::Status ApplyTransfer(const TransferPlan& plan, int64_t begin, int64_t end, float* out,
                           ReadOld read);

}  // namespace anyorder
