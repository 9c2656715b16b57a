// Sizes of a batch that a message may recommend: such as the configuration allows.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

#include "core/train/run/run_config.h"

namespace anyorder {

// `size` and its halves, which keep the number of microbatches a power of two.
std::vector<int64_t> Halves(int64_t size);

// "set train.global_batch_size = 64" (and train.micro_batch_size where that must change, too): the
// largest that are not above those of `config`, pass validation with `ranks` ranks, and that `fits`
// says yes to. Empty if there are none.
std::string BatchThatFits(const RunConfig& config, int64_t ranks,
                          absl::FunctionRef<bool(const RunConfig& candidate)> fits);

}  // namespace anyorder
