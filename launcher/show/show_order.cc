// A factorisation order that somebody writes down, as a lane of XLNet's objective: the figures of
// Yang et al. 2019 (3 -> 2 -> 4 -> 1 and its like), by the code that builds training's lanes.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

#include "core/base/status.h"
#include "launcher/show/show.h"

namespace anyorder::launcher {

absl::StatusOr<std::vector<int32_t>> ParseOrder(const std::string& order) {
  std::vector<int32_t> positions;
  for (const absl::string_view part : absl::StrSplit(order, ',')) {
    int32_t position = 0;
    if (!absl::SimpleAtoi(part, &position)) {
      return InvalidArgument("--order ", order, ": '", std::string(part),
                             "' is not a position; write them as 3,2,4,1");
    }
    positions.push_back(position);
  }
  const auto size = static_cast<int32_t>(positions.size());
  std::vector<bool> is_named(positions.size(), false);
  for (const int32_t position : positions) {
    if (position < 1 || position > size) {
      return InvalidArgument("--order ", order, ": ", position, " is not in 1 to ", size,
                             "; name each of the ", size, " positions once");
    }
    if (is_named[position - 1])
      return InvalidArgument("--order ", order, ": ", position,
                             " comes twice; name each position once");
    is_named[position - 1] = true;
  }
  return positions;
}

void ScaleToOrder(int64_t length, RunConfig& config) {
  config.sampling.seq_len = length;
  config.sampling.reuse_len = length;
  config.sampling.num_predict = length;
  config.model.mem_len = 0;
}

TextSample SampleOfOrder(const std::vector<int32_t>& order, std::vector<int32_t> tokens) {
  TextSample sample;
  sample.tokens = std::move(tokens);
  sample.segment.assign(order.size(), 0);
  sample.is_masked.assign(order.size(), 1);
  sample.is_functional.assign(order.size(), 0);
  sample.order.resize(order.size());
  for (size_t place = 0; place < order.size(); ++place)
    sample.order[order[place] - 1] = static_cast<int32_t>(place);
  return sample;
}

}  // namespace anyorder::launcher
