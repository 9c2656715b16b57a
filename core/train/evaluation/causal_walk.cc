#include "core/train/evaluation/causal_walk.h"

#include <memory>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/network/transformer.h"
#include "core/objective/lane_frame.h"
#include "core/objective/text_sample.h"

namespace anyorder {

namespace {

void CheckWindow(const ModelConfig& model, const CausalWalkOptions& options, FaultList& faults) {
  if (options.window_len == 0) return;
  faults.Require(options.window_len >= options.target_len,
                 absl::StrCat("window ", options.window_len,
                              " must be at least the target length, ", options.target_len));
  faults.Require(model.mem_len == 0,
                 absl::StrCat("memory length ", model.mem_len,
                              " must be 0: a window takes the place of memory"));
  faults.Require(!options.two_streams && !options.same_length,
                 "windows are for models of one stream, without same length; leave the window out");
}

void AddBatch(const CausalWalk& walk, int64_t number, const Batch& batch,
              const std::vector<float>& losses, CausalScore& score) {
  const int64_t length = batch.shape.targets;
  for (int64_t b = 0; b < batch.shape.batch_size; ++b) {
    score.losses.Add(SampleLosses(batch, losses, b, /*reuse_len=*/0).total());
    for (int64_t t = 0; t < length; ++t) {
      if (batch.weights[b * length + t] == 0) continue;
      const int64_t context = walk.ContextOf(walk.lanes().WindowOf(b, number), t);
      score.context_sum += static_cast<double>(context);
      score.context_min = std::min(score.context_min, context);
      ++score.label_counts[batch.labels[b * length + t]];
    }
  }
}

}  // namespace

absl::StatusOr<CausalWalk> CausalWalk::Create(const data::TextSource& text,
                                              const ModelConfig& model,
                                              const CausalWalkOptions& options) {
  FaultList faults;
  const auto at_least = [&faults](const char* what, int64_t value, int64_t bound) {
    faults.Require(value >= bound, absl::StrCat(what, " ", value, " must be at least ", bound));
  };
  at_least("target length", options.target_len, 1);
  at_least("number of lanes", options.lanes, 1);
  at_least("memory length", model.mem_len, options.same_length ? 1 : 0);
  faults.Require(
      model.mem_len <= text.num_tokens(),
      absl::StrCat("memory length ", model.mem_len, " must be at most the length of the text, ",
                   text.num_tokens(), " tokens"));
  faults.Require(!model.learned_positions() || model.mem_len == 0,
                 absl::StrCat("memory length ", model.mem_len,
                              " must be 0: learned positions cannot tell memory from the segment"));
  const int64_t slots = options.window_len > 0 ? options.window_len : options.target_len;
  // In pairs the last slot knows the position of the token that it predicts, too.
  const bool is_pair = model.paired_positions();
  faults.Require(
      !model.learned_positions() || slots + (is_pair ? 1 : 0) <= model.max_positions,
      absl::StrCat(options.window_len > 0 ? "window " : "target length ", slots, " must be ",
                   is_pair ? "below" : "at most", " model.max_positions = ", model.max_positions));
  CheckWindow(model, options, faults);
  RETURN_IF_ERROR(faults.ToStatus());
  // With two streams the text's first token takes a slot, too.
  const int64_t slots_of_text = text.num_tokens() - (options.two_streams ? 0 : 1);
  int64_t segments = (slots_of_text + options.target_len - 1) / options.target_len;
  if (text.num_tokens() < 2)
    return FailedPrecondition("text of ", text.num_tokens(), " tokens has nothing to predict");
  if (options.segments > 0) segments = std::min(segments, options.segments);
  const WindowLanes lanes(segments, options.lanes, WarmupWindows(model, options.target_len));
  return CausalWalk(text, model, options, lanes);
}

BatchShape CausalWalk::Shape() const {
  return {.batch_size = lanes_.lanes(),
          .content_rows = num_slots(),
          .query_rows = options_.two_streams ? options_.target_len : 0,
          .memory_rows = model_.mem_len,
          .targets = options_.target_len,
          .advance = options_.target_len,
          .min_distance = 0,  // nobody looks ahead
          .num_distances = num_slots() + model_.mem_len,
          .content_readout = !options_.two_streams,
          .next_positions = model_.paired_positions()};
}

absl::StatusOr<Batch> CausalWalk::MakeBatch(int64_t batch) const {
  ANYORDER_CHECK(batch >= 0 && batch < lanes_.num_batches()) << "batch " << batch;
  Batch made(Shape());
  if (options_.same_length) {
    const auto left = static_cast<int32_t>(model_.mem_len - (options_.two_streams ? 0 : 1));
    made.bands.assign(static_cast<size_t>(model_.num_layers * model_.num_heads),
                      kernels::Band{left, -1, 1});
  }
  for (int64_t b = 0; b < lanes_.lanes(); ++b) {
    RETURN_IF_ERROR(FillLane(b, lanes_.WindowOf(b, batch), lanes_.IsScored(b, batch), made));
  }
  return made;
}

absl::Status CausalWalk::FillLane(int64_t b, int64_t segment, bool is_scored, Batch& batch) const {
  const int64_t length = options_.target_len;
  const int64_t context = ContextSlots(segment);
  // One token more than there are slots: the last one's label.
  const int64_t first = std::min(segment * length, text_->num_tokens());
  const int64_t begin = first - context;
  const int64_t end = std::min(first + length + 1, text_->num_tokens());
  std::vector<int32_t> tokens(static_cast<size_t>(end - begin));
  RETURN_IF_ERROR(text_->ReadTokens(begin, end, tokens.data()));
  const auto available = std::ssize(tokens);
  tokens.resize(static_cast<size_t>(num_slots() + 1), 0);
  TextSample sample;
  sample.lane = b;
  sample.step = segment;
  sample.tokens.assign(tokens.begin(), tokens.end() - 1);
  FillLaneIdentity(sample, b, batch);
  FillMemoryKeys(sample, model_.initial_memory, b, batch);
  for (int64_t slot = 0; slot < num_slots(); ++slot) {
    SetContentSlot(b, slot, CausalSlot(tokens[slot], slot), batch);
    int64_t row = ContentRow(batch.shape, b) + slot;
    if (options_.two_streams) {
      row = QueryRow(batch.shape, b) + slot;
      SetRow(row, CausalQuery(slot), batch);
    }
    const int64_t entry = slot - context;
    if (entry < 0 || entry >= length) continue;  // read, not scored; or behind the end
    const int64_t target = options_.two_streams ? slot : slot + 1;
    const bool counts = is_scored && target < available && begin + target > 0;
    SetReadout(b, entry, row, counts ? tokens[target] : 0, counts ? 1.0f : 0.0f, batch);
  }
  return absl::OkStatus();
}

int64_t CausalWalk::ContextOf(int64_t segment, int64_t t) const {
  const int64_t memory = std::min(model_.mem_len, segment * options_.target_len);
  const int64_t keys = memory + ContextSlots(segment) + t + (options_.two_streams ? 0 : 1);
  return options_.same_length ? std::min(keys, model_.mem_len) : keys;
}

absl::StatusOr<CausalScore> ScoreCausally(const CausalWalk& walk, const ModelConfig& model,
                                          ConstTensorView weights, int64_t vocab_size,
                                          kernels::Backend& backend, const CausalWatcher& watcher) {
  const BatchShape shape = walk.Shape();
  ASSIGN_OR_RETURN(const std::unique_ptr<Transformer> network,
                   Transformer::Create(model, vocab_size, shape, backend, {.learns = false}));
  ASSIGN_OR_RETURN(MemoryRing memory, MemoryRing::Create(model, shape, shape.batch_size, backend));
  CausalScore score;
  score.context_min = shape.num_keys();
  score.label_counts.assign(static_cast<size_t>(vocab_size), 0);
  const int64_t batches = walk.lanes().num_batches();
  for (int64_t number = 0; number < batches; ++number) {
    ASSIGN_OR_RETURN(const Batch batch, walk.MakeBatch(number));
    network->Run({.batch = &batch,
                  .weights = weights,
                  .memory = memory.View(0, shape.batch_size),
                  .training = false},
                 {});
    memory.Advance();
    AddBatch(walk, number, batch, network->readout_losses(), score);
    if (watcher && !watcher(number + 1, batches, score)) break;
  }
  return score;
}

}  // namespace anyorder
