// A3 ("any-order any-subset autoregressive" modelling, ICLR 2026): tokens are put into groups,
// groups into an order; a group is predicted from the groups before it, its tokens independently of
// each other. Two streams: content sees groups up to its own, queries those before it, themselves
// never.

#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "core/objective/objective.h"

namespace anyorder {

absl::StatusOr<std::unique_ptr<Objective>> MakeA3(const ModelConfig& model,
                                                  const SamplingConfig& sampling);

}  // namespace anyorder
