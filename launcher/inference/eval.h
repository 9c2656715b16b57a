// `anyorder eval`: how well a checkpoint predicts text that it was not trained on.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "kernels/backends/make_backend.h"

namespace anyorder::launcher {

struct EvalOptions {
  std::string run_dir;
  int64_t step = -1;  // -1: the newest good checkpoint
  std::string data;   // dataset; "": eval.shards of the run
  std::string objective =
      "own";  // "own": the run's, as it trains; "causal": every token from left to right
  std::optional<int64_t> batches;     // scored ones a lane, 0: all; own: eval.batches, causal: 0
  std::optional<int64_t> batch_size;  // own: eval.batch_size or train.global_batch_size, causal: 1
  std::optional<int64_t> seed;        // own only: eval.seed
  // Own only, "key=value" over the run's configuration: other targets or less memory for the same
  // weights. Keys of [sampling], and model.mem_len.
  std::vector<std::string> overrides;
  // Causal only; absent: as the run trains.
  std::optional<int64_t> mem_len;
  std::optional<int64_t> target_len;
  std::optional<int64_t> window;     // tokens read with each segment, itself included; no memory
  std::optional<int64_t> clamp_len;  // -1: no limit
  bool same_length = false;
  int64_t threads = 0;  // 0: all usable cores; the digits do not depend on it
  kernels::DeviceChoice device = kernels::DeviceChoice::kAuto;
  bool json = false;
};

// Prints the losses with their definition. Changes nothing in the run directory.
// Errors: InvalidArgument for options that do not fit each other or the run; FailedPrecondition for
// text of another tokenizer or too little of it; NotFound, DataLoss.
absl::Status Evaluate(const EvalOptions& options);

}  // namespace anyorder::launcher
