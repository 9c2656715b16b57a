// Kernel features of topics and documents, from the token states of a frozen network.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "core/ranking/kernel_pooling.h"
#include "core/ranking/stop_words.h"
#include "core/train/evaluation/token_states.h"
#include "launcher/inference/batch_progress.h"
#include "launcher/inference/text_model.h"
#include "launcher/ranking/ranking_input.h"

namespace anyorder::launcher {

struct PairFeatureOptions {
  TokenStateOptions states;
  StopWords stop_words;
};

struct PairFeatures {
  // Features of each topic and each of its documents.
  std::vector<std::vector<KernelFeatures>> topics;
  int64_t max_length = 0;  // what it came to
  int64_t num_cut = 0;     // documents that are longer than that
};

// Each text is read once, whatever number of topics rank it, and its states are dropped once their
// features are known: memory grows with the queries, time with the documents' tokens and the
// topics' documents. Cancelled after a signal; the errors of RunVocabulary and TokenEncoder.
absl::StatusOr<PairFeatures> ComputePairFeatures(const RankingInput& input, const TextModel& model,
                                                 const PairFeatureOptions& options,
                                                 BatchProgress& progress);

}  // namespace anyorder::launcher
