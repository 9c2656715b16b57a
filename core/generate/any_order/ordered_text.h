// A text that is written in an order which is fixed first: who comes when, and the slots of its
// tokens and blanks, of networks whose tokens have ranks in the order of writing.

#pragma once

#include <cstdint>
#include <vector>

#include "core/generate/any_order/lane_text.h"
#include "core/generate/any_order/write_options.h"
#include "core/generate/slot_network.h"

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
  OrderedText(const CanvasForm& form, const Canvas& canvas, const WriteOptions& options);

  LaneText& text() { return text_; }
  const LaneText& text() const { return text_; }
  int64_t size() const { return static_cast<int64_t>(order_.size()); }
  int64_t position(int64_t index) const { return order_[index]; }
  // Tokens that are there, in the order's beginning.
  int64_t known() const { return known_; }
  bool is_done() const { return text_.is_done(); }
  // The end of the group that begins at known().
  int64_t GroupEnd() const;
  // How many of `kept` tokens have final keys: in Eso-LM (A) what was given and what diffusion
  // writes see one another, so that none has before all of them are there.
  int64_t NumFinal(int64_t kept) const {
    return form_.eso.clean_see_all && kept < diffusion_end_ ? 0 : kept;
  }

  // Lasting slots of tokens [from, to), as `tokens` (of which index known() + i is drafts[i]) has
  // them.
  void AddKnown(int64_t from, int64_t to, const std::vector<int32_t>& drafts, LanePass* pass) const;
  // Rows that predict tokens [known(), end) from those before known(), and their reads. kPairs:
  // with `newest_is_kept` the newest token is the pass's last lasting slot and predicts the first.
  void AskAhead(int64_t end, bool newest_is_kept, LanePass* pass) const;
  // Rows that predict each of [from, to) from all before it. Of kPairs the pass's lasting slots
  // must end with token to - 1; of others with any.
  void AskInTurn(int64_t from, int64_t to, LanePass* pass) const;

  // Writes the next token of the order.
  const WrittenToken& Write(int32_t token, double log_prob, double confidence) {
    return text_.Write(order_[known_++], token, log_prob, confidence);
  }
  // The blanks that are left are written in this order from here on.
  void Reorder(const std::vector<int64_t>& positions);

 private:
  int64_t num_given() const { return static_cast<int64_t>(text_.given().size()); }
  void DrawDiffusionGroups(const WriteOptions& options);
  int64_t TokenRank(int64_t index) const;

  const CanvasForm& form_;
  LaneText text_;
  std::vector<int64_t> order_;
  std::vector<int64_t> group_ends_;  // of blanks' groups, as indices into the order, ascending
  int64_t diffusion_end_ = 0;        // kEso
  int64_t known_ = 0;
};

}  // namespace anyorder
