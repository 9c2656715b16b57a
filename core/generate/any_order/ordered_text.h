// A text that is written in an order which is fixed first: who comes when, and the slots of its
// tokens and blanks, of networks whose tokens have ranks in the order of writing.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/check.h"
#include "core/generate/any_order/lane_text.h"
#include "core/generate/any_order/write_options.h"
#include "core/generate/slot_network.h"
#include "core/objective/lane_frame.h"

namespace anyorder {

// The order: what was given, then the blanks, in groups that are written together. Tokens count
// from 0 in it.
//   kSequential, kSpeculative  a blank a group
//   kBurst                     all blanks in one: kDraft says how many are guessed
//   kGroups                    options.group_len blanks a group
//   kEso                       k ~ Binomial(left, (alpha_s - alpha_t) / (1 - alpha_t)) random
//                              blanks at each of `steps` times, where k > 0; then the others one by
//                              one from left to right (Sahoo et al. 2025, section 4). With alpha_0
//                              = 1 the last time takes all that are left.
// Blanks stand by position, or with options.random_order at random.
//
// Ranks. kTwoStream: what was given has 0, groups 1, 2, ... kEso and kPairs: a token's rank is its
// number; in Eso-LM (A) what was given and what diffusion writes share rank 0.
class OrderedText {
 public:
  OrderedText(const CanvasForm& form, const Canvas& canvas, const WriteOptions& options)
      : form_(form), text_(canvas, options.draw), order_(text_.given()), known_(num_given()) {
    const bool is_eso = form.family == CanvasFamily::kEso;
    order_.insert(order_.end(), text_.blanks().begin(), text_.blanks().end());
    // Eso-LM has met given tokens in random order.
    if (is_eso)
      Shuffle(text_.Draws(RandomPurpose::kWritingOrder, 0, 1), order_.begin(),
              order_.begin() + known_);
    if (is_eso || options.random_order)
      Shuffle(text_.Draws(RandomPurpose::kWritingOrder, 0, 0), order_.begin() + known_,
              order_.end());
    if (is_eso) {
      DrawDiffusionGroups(options);
      return;
    }
    const int64_t group = options.method == WriteMethod::kGroups ? options.group_len : 1;
    for (int64_t end = known_; end < size();) {
      end = std::min(end + group, size());
      group_ends_.push_back(end);
    }
  }

  LaneText& text() { return text_; }
  const LaneText& text() const { return text_; }
  int64_t size() const { return static_cast<int64_t>(order_.size()); }
  int64_t position(int64_t index) const { return order_[index]; }
  // Tokens that are there, in the order's beginning.
  int64_t known() const { return known_; }
  bool is_done() const { return text_.is_done(); }
  // The end of the group that begins at known().
  int64_t GroupEnd() const {
    return *std::upper_bound(group_ends_.begin(), group_ends_.end(), known_);
  }
  // How many of `kept` tokens have final keys: in Eso-LM (A) what was given and what diffusion
  // writes see one another, so that none has before all of them are there.
  int64_t NumFinal(int64_t kept) const {
    return form_.eso.clean_see_all && kept < diffusion_end_ ? 0 : kept;
  }

  // Lasting slots of tokens [from, to), as `tokens` (of which index known() + i is drafts[i]) has
  // them.
  void AddKnown(int64_t from, int64_t to, const std::vector<int32_t>& drafts,
                LanePass* pass) const {
    for (int64_t i = from; i < to; ++i) {
      const int32_t token = i < known_ ? text_.tokens()[order_[i]] : drafts[i - known_];
      const int64_t next = i + 1 < size() ? order_[i + 1] : 0;
      pass->lasting.push_back(form_.Token(token, order_[i], TokenRank(i), next));
    }
  }
  // Rows that predict tokens [known(), end) from those before known(), and their reads. kPairs:
  // with `newest_is_kept` the newest token is the pass's last lasting slot and predicts the first.
  void AskAhead(int64_t end, bool newest_is_kept, LanePass* pass) const {
    const auto content = [pass] {
      return static_cast<int64_t>(pass->lasting.size() + pass->passing.size());
    };
    if (form_.family == CanvasFamily::kTwoStream) {
      // Before a group that is guessed together, whatever it is, all see what is known.
      for (int64_t i = known_; i < end; ++i) {
        pass->reads.push_back(content() + static_cast<int64_t>(pass->queries.size()));
        pass->queries.push_back(form_.Blank(order_[i], TokenRank(known_)));
      }
      return;
    }
    if (form_.family == CanvasFamily::kPairs) {
      const int64_t newest = known_ - 1;
      if (newest_is_kept) pass->reads.push_back(content() - 1);
      for (int64_t i = known_ + (newest_is_kept ? 1 : 0); i < end; ++i) {
        pass->reads.push_back(content());
        pass->passing.push_back(
            form_.LoneSlot(text_.tokens()[order_[newest]], order_[newest], newest, i, order_[i]));
      }
      return;
    }
    ANYORDER_CHECK(form_.family == CanvasFamily::kEso) << "a network without ranks";
    const bool is_diffusion = known_ < diffusion_end_;
    const int64_t shown = is_diffusion && form_.eso.masks_see_all ? size() : end;
    for (int64_t i = known_; i < shown; ++i) {
      if (i < end) pass->reads.push_back(content());
      const int64_t rank = form_.eso.masks_see_all ? known_ : i;
      pass->passing.push_back(is_diffusion ? form_.Blank(order_[i], rank)
                                           : form_.LoneSlot(form_.mask_token, order_[i], i, i));
    }
  }
  // Rows that predict each of [from, to) from all before it. Of kPairs the pass's lasting slots
  // must end with token to - 1; of others with any.
  void AskInTurn(int64_t from, int64_t to, LanePass* pass) const {
    const auto content = static_cast<int64_t>(pass->lasting.size() + pass->passing.size());
    for (int64_t i = from; i < to; ++i) {
      if (form_.predicts_next()) {
        pass->reads.push_back(content - 1 - (to - 1 - (i - 1)));
      } else if (form_.family == CanvasFamily::kEso) {
        pass->reads.push_back(static_cast<int64_t>(pass->lasting.size() + pass->passing.size()));
        pass->passing.push_back(form_.LoneSlot(form_.mask_token, order_[i], i, i));
      } else {
        ANYORDER_CHECK(form_.family == CanvasFamily::kTwoStream) << "a network without ranks";
        pass->reads.push_back(content + static_cast<int64_t>(pass->queries.size()));
        pass->queries.push_back(form_.Blank(order_[i], TokenRank(i)));
      }
    }
  }

  // Writes the next token of the order.
  const WrittenToken& Write(int32_t token, double log_prob, double confidence) {
    return text_.Write(order_[known_++], token, log_prob, confidence);
  }
  // The blanks that are left are written in this order from here on.
  void Reorder(const std::vector<int64_t>& positions) {
    ANYORDER_CHECK(static_cast<int64_t>(positions.size()) == size() - known_) << "blanks";
    std::copy(positions.begin(), positions.end(), order_.begin() + known_);
  }

 private:
  int64_t num_given() const { return static_cast<int64_t>(text_.given().size()); }
  void DrawDiffusionGroups(const WriteOptions& options) {
    const double share = form_.eso.diffusion_share;
    const int64_t steps = options.steps > 0 ? options.steps : std::max<int64_t>(1, size() - known_);
    RandomStream draws = text_.Draws(RandomPurpose::kWritingOrder, 0, 2);
    int64_t end = known_;
    for (int64_t step = 0; step < steps; ++step) {
      const auto alpha = [&](int64_t at) {  // log-linear, from 0 to the share
        return share * static_cast<double>(at) / static_cast<double>(steps);
      };
      const double rate = (alpha(step + 1) - alpha(step)) / (1 - alpha(step));
      const int64_t left = size() - end;
      for (int64_t i = 0; i < left; ++i) end += draws.Uniform() < rate ? 1 : 0;
      if (end > (group_ends_.empty() ? known_ : group_ends_.back())) group_ends_.push_back(end);
    }
    diffusion_end_ = end;
    std::sort(order_.begin() + end, order_.end());
    for (int64_t i = end + 1; i <= size(); ++i) group_ends_.push_back(i);
  }
  int64_t TokenRank(int64_t index) const {
    if (form_.family != CanvasFamily::kTwoStream)
      return form_.eso.clean_see_all && index < diffusion_end_ ? 0 : index;
    if (index < num_given()) return 0;
    return std::upper_bound(group_ends_.begin(), group_ends_.end(), index) - group_ends_.begin() +
           1;
  }

  const CanvasForm& form_;
  LaneText text_;
  std::vector<int64_t> order_;
  std::vector<int64_t> group_ends_;  // of blanks' groups, as indices into the order, ascending
  int64_t diffusion_end_ = 0;        // kEso
  int64_t known_ = 0;
};

}  // namespace anyorder
