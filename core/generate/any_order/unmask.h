// Methods that predict all blanks of a part of the text at once and write some of them, by
// confidence or by chance, until none is left.

#pragma once

#include <vector>

#include "absl/status/statusor.h"

#include "core/generate/any_order/write_options.h"

namespace anyorder {

// kLlada, kDream, kMdlm, kThreshold, kBlocks and kResample, whose parameters WriteOptions has.
// Parts: blocks of block_len from the first blank on; of block diffusion the network's own blocks.
// REQUIRES: CheckCanWrite.
absl::StatusOr<std::vector<WrittenText>> UnmaskBlanks(const WritingModel& model,
                                                      const std::vector<Canvas>& canvases,
                                                      const WriteOptions& options,
                                                      TokenListener listener);

}  // namespace anyorder
