// Windows of (layer, head) as the configuration spells them (Longformer, Beltagy et al. 2020,
// section 3).
//
//   attention_windows = "32:0; 64:0; 2x 128:0:2 / 6x 128:0"
//
// Layers stand between semicolons: one for all, or as many as there are. In a layer groups of heads
// stand between slashes, each with its number of heads; a group that is alone may leave it out. A
// group's window is LEFT:RIGHT or LEFT:RIGHT:STRIDE as in kernels::Band: LEFT keys before the row
// and RIGHT keys after it, every STRIDEth position; `*` is no limit. LEFT and RIGHT count one side
// (the paper's window is both).

#pragma once

#include <vector>

#include "absl/status/statusor.h"

#include "core/config/model_config.h"
#include "kernels/visibility.h"

namespace anyorder {

// [layers * heads], or empty where all are unlimited: `attention_windows`, or what `same_length`
// asks for. InvalidArgument names the part that cannot be read.
absl::StatusOr<std::vector<kernels::Band>> AttentionWindows(const ModelConfig& model);

}  // namespace anyorder
