// Left-to-right reading of a whole text in segments, so that each token is scored once
// (Transformer-XL, Dai et al. 2019, sections 3.2 and 4; the evaluation options of its released
// code).
//
// N - 1 tokens are predicted: all but the text's first, which nothing precedes. Segment s holds T
// tokens, s T ones into the text; memory carries the M newest states from segment to segment.
// Unused slots at the end of the last segment have weight 0, and no used slot sees them. Several
// lanes compute segments at once (WindowLanes), and each token's context is that of a single one.
//
// How a token is predicted is the objective's (GenerationForm::scores_texts).
// One stream: slot t reads token i and predicts token i + 1.
// Two streams (forms with a query slot): the factorisation order is the reading order and every
// token is a target: query slot t predicts token i and sees the content of the tokens before it.
//
// Same length: each scored slot sees its M newest predecessors and no more (once that many exist),
// whatever its place in the segment. Of the two released forms, which differ by one key, this is
// the PyTorch one: M keys for each prediction (TensorFlow's has M + 1). The window on positions is
// {M - 1} to the left for one stream, whose slots see themselves, and {M} for query slots, which do
// not.
//
// Windows (Longformer, Beltagy et al. 2020, section 4.2): instead of memory each segment is read
// together with the W - T tokens before it, as many as there are, and only it is scored. Every
// prediction but the text's first ones has W - T to W - 1 tokens before it, whatever the positions
// are.

#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/tensor.h"
#include "core/config/model_config.h"
#include "core/objective/batch.h"
#include "core/train/evaluation/loss_sums.h"
#include "core/train/evaluation/window_walk.h"
#include "data/dataset/text_source.h"
#include "kernels/backend.h"

namespace anyorder {

struct CausalWalkOptions {
  int64_t target_len = 128;  // T
  int64_t lanes = 1;         // segments computed at once, at most
  bool same_length = false;
  bool two_streams = false;
  int64_t window_len = 0;  // W, one stream without memory; 0: no windows
  int64_t segments = 0;    // to score, from the text's beginning; 0: all
};

class CausalWalk {
 public:
  // M is model.mem_len. InvalidArgument for bad sizes; FailedPrecondition if the text has nothing
  // to predict. `text` is borrowed.
  static absl::StatusOr<CausalWalk> Create(const data::TextSource& text, const ModelConfig& model,
                                           const CausalWalkOptions& options);

  BatchShape Shape() const;
  // Which segment a lane computes in which batch.
  const WindowLanes& lanes() const { return lanes_; }
  int64_t num_predictions() const { return text_->num_tokens() - 1; }
  // Of Shape(). DataLoss.
  absl::StatusOr<Batch> MakeBatch(int64_t batch) const;
  // Keys that hold text and that the slot of target `t` sees in segment `segment`.
  int64_t ContextOf(int64_t segment, int64_t t) const;

 private:
  CausalWalk(const data::TextSource& text, const ModelConfig& model,
             const CausalWalkOptions& options, WindowLanes lanes)
      : text_(&text), model_(model), options_(options), lanes_(lanes) {}
  absl::Status FillLane(int64_t b, int64_t segment, bool is_scored, Batch& batch) const;
  // Slots that are read in a segment, and how many of them precede the first that is scored.
  int64_t num_slots() const {
    return options_.window_len > 0 ? options_.window_len : options_.target_len;
  }
  int64_t ContextSlots(int64_t segment) const {
    return std::min(num_slots() - options_.target_len, segment * options_.target_len);
  }

  const data::TextSource* text_;
  ModelConfig model_;
  CausalWalkOptions options_;
  WindowLanes lanes_;
};

// Likelihood of a whole text from left to right: what perplexity is made of. Without dropout.

struct CausalScore {
  LossSums losses;                    // a sample is one segment of one lane
  double context_sum = 0;             // over targets: keys that the prediction attends to directly
  int64_t context_min = 0;            // the smallest of them
  std::vector<int64_t> label_counts;  // [vocab_size] how often each token was predicted
};

// Told of each batch that is done, of how many, and of the score so far; false: no more.
using CausalWatcher = std::function<bool(int64_t done, int64_t batches, const CausalScore& score)>;

// Scores the segments of `walk`, until `watcher` (may be null) says so. `model`: the one that
// `walk` was made with; `weights` as in StepArgs. Errors: the text's, the network's.
absl::StatusOr<CausalScore> ScoreCausally(const CausalWalk& walk, const ModelConfig& model,
                                          ConstTensorView weights, int64_t vocab_size,
                                          kernels::Backend& backend,
                                          const CausalWatcher& watcher = nullptr);

}  // namespace anyorder
