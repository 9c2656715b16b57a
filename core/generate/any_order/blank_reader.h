// Logits of blanks that are all predicted from the same tokens: the passes of methods that unmask.

#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/generate/any_order/open_network.h"
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
                                                             BlockCache cache, bool recompute) {
    std::unique_ptr<BlankReader> reader(new BlankReader(model, cache));
    SlotNetworkOptions options{.lanes = num_texts, .key_slots = length, .span = length};
    switch (model.form.family) {
      case CanvasFamily::kMasked: options.cached = cache != BlockCache::kNone; break;
      case CanvasFamily::kBlocks:
        // The clean text, a block of its noised copy, a clean token again.
        options.key_slots += model.form.block_len + 1;
        options.cached = !recompute;
        break;
      default: options.cached = false;
    }
    ASSIGN_OR_RETURN(reader->network_, OpenNetwork(model, options));
    reader->part_.assign(static_cast<size_t>(num_texts), -1);
    return reader;
  }

  // `texts` hold kBlank where they are blank. One question a text. ResourceExhausted.
  absl::Status Read(const std::vector<std::vector<int32_t>>& texts,
                    const std::vector<BlankQuestion>& questions) {
    std::vector<LanePass> passes;
    for (size_t lane = 0; lane < texts.size(); ++lane) {
      const BlankQuestion& asked = questions[lane];
      if (asked.positions.empty()) {
        passes.emplace_back();
      } else if (model_.form.family == CanvasFamily::kMasked) {
        passes.push_back(MaskedPass(static_cast<int64_t>(lane), texts[lane], asked));
      } else if (model_.form.family == CanvasFamily::kBlocks) {
        passes.push_back(BlockPass(static_cast<int64_t>(lane), texts[lane], asked));
      } else {
        passes.push_back(QueryPass(texts[lane], asked));
      }
    }
    return network_->Run(passes);
  }
  // The logits [V] of blank `index` of the text's question. SlotNetwork::ReadRow's errors.
  absl::Status Row(int64_t text, int64_t index, std::vector<double>* logits) {
    return network_->ReadRow(text, index, logits);
  }

 private:
  BlankReader(const WritingModel& model, BlockCache cache) : model_(model), cache_(cache) {}

  // Slots that are kept come first; where a slot stands among keys says nothing.
  LanePass MaskedPass(int64_t lane, const std::vector<int32_t>& text, const BlankQuestion& asked) {
    const CanvasForm& form = model_.form;
    const auto length = static_cast<int64_t>(text.size());
    // The slot before a part predicts its first blank.
    const int64_t shift = form.shifted ? 1 : 0;
    const bool has_cache = cache_ != BlockCache::kNone;
    const int64_t begin = has_cache ? std::max<int64_t>(0, asked.begin - shift) : 0;
    const int64_t end = cache_ == BlockCache::kDual ? asked.end : length;
    LanePass pass;
    const auto add = [&](int64_t from, int64_t to, std::vector<Slot>* slots) {
      for (int64_t i = from; i < to; ++i)
        slots->push_back(text[i] == kBlank ? form.Blank(i, 0) : form.Token(text[i], i, 0));
    };
    if (has_cache && part_[lane] != asked.begin) {
      network_->Keep(lane, 0);
      add(0, begin, &pass.lasting);
      add(end, length, &pass.lasting);
      part_[lane] = asked.begin;
    }
    add(begin, end, &pass.passing);
    for (const int64_t position : asked.positions)
      pass.reads.push_back(std::ssize(pass.lasting) + position - shift - begin);
    return pass;
  }

  LanePass BlockPass(int64_t lane, const std::vector<int32_t>& text, const BlankQuestion& asked) {
    const CanvasForm& form = model_.form;
    ANYORDER_CHECK(asked.begin % form.block_len == 0) << "no block begins at " << asked.begin;
    LanePass pass;
    // A window of whole blocks, as long as training's; the slot before the block predicts its first
    // token where readouts are shifted.
    const int64_t before = asked.begin - (form.shifted ? 1 : 0);
    const int64_t first_seen = std::clamp<int64_t>(asked.begin + form.block_len - form.seq_len, 0,
                                                   std::max<int64_t>(0, before));
    network_->Hide(lane, std::min(first_seen, network_->kept(lane)));
    for (int64_t i = network_->kept(lane); i < asked.begin; ++i) {
      pass.lasting.push_back(i < first_seen ? PadSlot(i) : form.Token(text[i], i, form.BlockOf(i)));
    }
    for (int64_t i = asked.begin; i < asked.end; ++i) {
      pass.passing.push_back(text[i] == kBlank ? form.Blank(i, 0)
                                               : form.UnfinishedToken(text[i], i));
    }
    const auto lasting = static_cast<int64_t>(pass.lasting.size());
    for (const int64_t position : asked.positions) {
      int64_t row = lasting + position - asked.begin;
      if (form.shifted && position > asked.begin) {
        --row;
      } else if (form.shifted && lasting > 0) {
        row = lasting - 1;
      } else if (form.shifted) {
        // The clean token before the block again: it sees its keys and adds none.
        Slot again = form.Token(text[position - 1], position - 1, form.BlockOf(position - 1));
        again.key = kernels::kKeyNever;
        row = static_cast<int64_t>(pass.passing.size());
        pass.passing.push_back(again);
      }
      pass.reads.push_back(row);
    }
    return pass;
  }

  LanePass QueryPass(const std::vector<int32_t>& text, const BlankQuestion& asked) const {
    LanePass pass;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == kBlank) continue;
      pass.passing.push_back(model_.form.Token(text[i], static_cast<int64_t>(i), 0));
    }
    for (const int64_t position : asked.positions)
      pass.queries.push_back(model_.form.Blank(position, 1));
    pass.reads.resize(asked.positions.size());
    std::iota(pass.reads.begin(), pass.reads.end(), static_cast<int64_t>(pass.passing.size()));
    return pass;
  }

  const WritingModel& model_;
  const BlockCache cache_;
  std::unique_ptr<SlotNetwork> network_;
  std::vector<int64_t> part_;  // where the part begins that a lane's kept keys are for; -1: none
};

}  // namespace anyorder
