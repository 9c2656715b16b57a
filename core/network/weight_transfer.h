// Weights of one model as the start of another that is larger in a way the first can fill
// (Longformer, Beltagy et al. 2020, sections 4.2.2 and 5): more learned positions, global slots
// with projections of their own, a fresh head.

#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/fields.h"
#include "core/network/tensors/parameters.h"

namespace anyorder {

// What the rows of a longer table of positions that the shorter one does not have begin with: its
// rows again, from the first, as often as needed, so that each stretch of the text is known at
// once; or initial values, as in a model from scratch.
enum class NewPositions { kCopy, kRandom };

template <>
inline constexpr auto kEnumNames<NewPositions> =
    std::to_array<std::pair<NewPositions, const char*>>({{NewPositions::kCopy, "copy"},
                                                         {NewPositions::kRandom, "random"}});

struct TransferOptions {
  NewPositions positions = NewPositions::kCopy;
  uint64_t seed = 1;  // of what is drawn
};

// What became of the parameters that are not simply the same.
struct TransferSummary {
  int64_t positions_before = 0;  // rows of the table, 0 without one
  int64_t positions_after = 0;
  int64_t projections_copied = 0;     // global ones, of the q, k or v beside them
  std::vector<std::string> drawn;     // new ones at their initial values
  std::vector<std::string> left_out;  // old ones that the new model does not have
};

// Fills `out` [to.num_elements()] from `values`, which has the parameters `from` at their offsets.
// `model` is that of `to`.
//
// Every parameter of the new model is the old one of that name and shape, but: rows of a longer
// position table (TransferOptions); global_q, global_k, global_v and their biases, where the old
// model has none: copies of q, k, v; the next-sentence head, where it has none: drawn. Of the old
// model the head and the global projections may be left out. Everything else that differs, and a
// shorter table, is InvalidArgument, naming the parameter and both shapes.
absl::StatusOr<TransferSummary> TransferWeights(const std::vector<ParameterInfo>& from,
                                                const float* values, const ModelConfig& model,
                                                const ParameterLayout& to,
                                                const TransferOptions& options, float* out);

}  // namespace anyorder
