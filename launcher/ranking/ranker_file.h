// A trained ranker as a file (README.md has its fields), with all that its features depend on.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "core/ranking/kernel_ranker.h"
#include "core/ranking/stop_words.h"

namespace anyorder::launcher {

struct SavedRanker {
  TrainedRanker trained;
  std::string network;     // state digest of the checkpoint (ckpt::Checkpoint::StateDigest)
  int64_t max_length = 0;  // slots
  StopWords stop_words;
};

std::string SerializeRanker(const SavedRanker& ranker);
// Errors: those of ReadWholeFile; DataLoss, naming the path, for a file that SerializeRanker did
// not make.
absl::StatusOr<SavedRanker> ReadRanker(const std::string& path);

}  // namespace anyorder::launcher
