// The methods that fill blanks, by family. Their parameters are WriteOptions'. REQUIRES of all:
// CheckCanWrite.

#pragma once

#include <vector>

#include "absl/status/statusor.h"

#include "core/generate/any_order/write_options.h"

namespace anyorder {

// As WriteBlanks has it. Borrows all.
struct WritingTask {
  const WritingModel& model;
  const std::vector<Canvas>& canvases;
  const WriteOptions& options;
  TokenListener listener;
  PassCheck check;
};

// Methods that predict all blanks of a part of the text at once and write some of them, by
// confidence or by chance, until none is left: kLlada, kDream, kMdlm, kThreshold, kBlocks and
// kResample. Parts: blocks of block_len from the first blank on; of block diffusion the network's
// own blocks.
absl::StatusOr<std::vector<WrittenText>> UnmaskBlanks(const WritingTask& task);

// Methods whose order is fixed first (ordered_text.h): kEso, kGroups and kSequential. Group after
// group of blanks is predicted from the tokens of the groups before it. With groups of one token
// each has the model's own distribution given those before it, so that a text has the model's
// probability in that order.
absl::StatusOr<std::vector<WrittenText>> WriteInOrder(const WritingTask& task);

// Methods that guess several tokens from one pass and keep those that a second pass, in which each
// sees those before it, would have drawn as well.
//
// kSpeculative: any-subset speculative decoding (Guo and Ermon 2025, algorithm 1). A round guesses
// the next options.draft tokens of the order, each from p(. | what is known), and asks q(. | what
// is known, guesses before it) in one pass. A guess x is kept with probability min(1, q(x) / p(x));
// at the first that is not, a token is drawn from what q has more than p, max(q - p, 0) normalised,
// and the round ends. What is written has the distribution of one token after the other. The first
// guess is always kept, and the last blank needs no second pass, so that there are never more
// passes than tokens. With one guess a round the text is kSequential's, token for token.
//
// kBurst: the same with all blanks guessed (options.draft 0), in an order drawn anew each round
// (Pannatier et al. 2024, section 3.3). With options.literal as released: options.orders orders are
// tried, the one that keeps the most guesses wins, and no token is drawn where it ends; both give
// texts another distribution than the model's.
absl::StatusOr<std::vector<WrittenText>> WriteSpeculatively(const WritingTask& task);

}  // namespace anyorder
