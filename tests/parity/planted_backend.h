// A backend that computes with one chosen mistake in it, such as implementations of XLNet make:
// what shows that the comparison of training notices. The product's code stays as it is; the
// mistake is put into what the network asks its backend for.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/train/run/run_config.h"
#include "kernels/backend.h"

namespace anyorder {

// The names that MakePlantedBackend knows, "none" first.
std::vector<std::string> PlantNames();

// `inner` with the mistake `plant` for runs of `config` (permutation_lm). InvalidArgument for an
// unknown name.
absl::StatusOr<std::unique_ptr<kernels::Backend>> MakePlantedBackend(
    const std::string& plant, const RunConfig& config, std::unique_ptr<kernels::Backend> inner);

}  // namespace anyorder
