// A network for texts that are written or scored side by side.

#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "core/generate/any_order/write_options.h"
#include "core/generate/slot_network.h"

namespace anyorder {

// SlotNetwork::Create for the network that writes, which is borrowed; its errors. There is room for
// passes whose rows are rounded up.
inline absl::StatusOr<std::unique_ptr<SlotNetwork>> OpenNetwork(const WritingModel& model,
                                                                SlotNetworkOptions options) {
  options.key_slots += options.key_slots / 4;
  options.before_pass = model.before_pass;
  return SlotNetwork::Create(*model.model, model.vocab_size, model.weights, options,
                             *model.backend);
}

// How many of `lanes` texts of `length` tokens one network computes at once with activations of at
// most `bytes`; at least one.
inline int64_t LanesOf(const WritingModel& model, int64_t lanes, int64_t length, int64_t bytes) {
  const CanvasFamily family = model.form.family;
  const BatchShape most{.content_rows = family == CanvasFamily::kEso ? 2 * length : length,
                        .query_rows = family == CanvasFamily::kTwoStream ? length : 0,
                        .targets = length,
                        .num_distances = 2 * length - 1};
  return LanesThatFit(*model.model, model.vocab_size, most, lanes, bytes);
}

// Tokens of the longest of texts.
template <typename Text>
int64_t LongestOf(const std::vector<Text>& texts) {
  size_t length = 0;
  for (const Text& text : texts) length = std::max(length, text.tokens.size());
  return static_cast<int64_t>(length);
}

}  // namespace anyorder
