// Logits of blanks that are all predicted from the same tokens: the passes of methods that unmask.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "core/generate/any_order/write_options.h"
#include "core/generate/slot_network.h"

namespace anyorder {

// What a lane asks: blanks `positions` of the part [begin, end) of its text that is being written.
// kBlocks: the part is a block. No positions: the lane has no slots in this pass.
struct BlankQuestion {
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<int64_t> positions;
};

// Reads networks of the families kMasked, kBlocks and kTwoStream.
//   kMasked     everybody sees everybody, so each pass computes the whole text; with a BlockCache
//               less, once it has been computed for the part.
//   kBlocks     a pass computes the part, and finished blocks before it once. It sees at most
//               seq_len tokens: of longer texts the first blocks are hidden, but keys that were
//               kept while they were visible depend on them.
//   kTwoStream  a pass computes the tokens, which see one another, and a query a blank.
class BlankReader {
 public:
  // For `num_texts` texts of at most `length` tokens. `model` is borrowed.
  static absl::StatusOr<std::unique_ptr<BlankReader>> Create(const WritingModel& model,
                                                             int64_t num_texts, int64_t length,
                                                             BlockCache cache, bool recompute);

  // `texts` hold kBlank where they are blank. One question a text. ResourceExhausted.
  absl::Status Read(const std::vector<std::vector<int32_t>>& texts,
                    const std::vector<BlankQuestion>& questions);
  // The logits [V] of blank `index` of the text's question. SlotNetwork::ReadRow's errors.
  absl::Status Row(int64_t text, int64_t index, std::vector<double>* logits) {
    return network_->ReadRow(text, index, logits);
  }

 private:
  BlankReader(const WritingModel& model, BlockCache cache) : model_(model), cache_(cache) {}
  LanePass MaskedPass(int64_t lane, const std::vector<int32_t>& text, const BlankQuestion& asked);
  LanePass BlockPass(int64_t lane, const std::vector<int32_t>& text, const BlankQuestion& asked);
  LanePass QueryPass(const std::vector<int32_t>& text, const BlankQuestion& asked) const;

  const WritingModel& model_;
  const BlockCache cache_;
  std::unique_ptr<SlotNetwork> network_;
  std::vector<int64_t> part_;  // where the part begins that a lane's kept keys are for; -1: none
};

}  // namespace anyorder
