// What all methods that write in any order have in common: the text they write, how tokens are
// drawn, and what they tell about it.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/fields.h"
#include "core/config/model_config.h"
#include "core/generate/sampling.h"
#include "core/objective/canvas_form.h"
#include "kernels/backend.h"

namespace anyorder {

inline constexpr int32_t kBlank = -1;

// A text to write: each position holds a token, which stays, or kBlank.
struct Canvas {
  std::vector<int32_t> tokens;
  // Its number: what is drawn for it depends on it, the seed, the position and the step, and on
  // nothing else that is written at the same time.
  uint64_t stream = 0;
  std::optional<uint64_t> seed = {};  // instead of DrawOptions'
  // Additional banned tokens [V] of single positions; 1: banned.
  std::map<int64_t, std::shared_ptr<const std::vector<uint8_t>>> banned_at = {};
};

struct WrittenText {
  std::vector<int32_t> tokens;        // the canvas; what was not written holds the end token
  std::vector<WrittenToken> written;  // in the order of writing
  int64_t passes = 0;                 // of the network
  double log_prob = 0;  // sum of the tokens' log_prob: the text's own given what was there, if each
                        // token was predicted from all those written before it
};

// How one token is drawn from logits.
struct DrawOptions {
  TokenCuts cuts;
  uint64_t seed = 1;
  std::vector<uint8_t> banned;  // [V] 1: never; empty: none is. <mask> should be banned.

  bool operator==(const DrawOptions&) const = default;
};

// Methods (README.md has what each computes, and its source).
enum class WriteMethod {
  kLeftToRight,  // beam_search.h, sampling.h
  kLlada,
  kDream,
  kMdlm,
  kThreshold,
  kBlocks,
  kEso,
  kGroups,
  kResample,
  kSequential,
  kSpeculative,
  kBurst,
};
constexpr auto SpellingsOf(WriteMethod) {
  return std::array{"left-to-right", "llada", "dream",       "mdlm",       "threshold",   "bd3lm",
                    "eso-lm",        "a3",    "a3-resample", "sequential", "speculative", "burst"};
}

// How sure a prediction is: the probability of its token, its lead over the second most likely
// token, the negative entropy of all tokens, or a random number.
enum class Confidence { kProbability, kMargin, kEntropy, kRandom };
constexpr auto SpellingsOf(Confidence) {
  return std::array{"probability", "margin", "entropy", "random"};
}

// Keys of a network whose keys are not final, kept within a block (Wu et al. 2025, Fast-dLLM):
// those of the tokens before it, or of all others. Both approximate.
enum class BlockCache { kNone, kPrefix, kDual };
constexpr auto SpellingsOf(BlockCache) { return std::array{"none", "prefix", "dual"}; }

// Methods that an option acts on; empty: all.
using WriteMethods = std::vector<WriteMethod>;
// "llada, dream"
std::string NamesOf(const WriteMethods& methods);

struct WriteOptions {
  WriteMethod method = WriteMethod::kLlada;
  DrawOptions draw;
  int64_t steps = 0;
  int64_t block_len = 0;
  Confidence confidence = Confidence::kProbability;
  bool origin = false;
  double order_temperature = 0;
  double guidance = 0;
  double threshold = 0.9;
  BlockCache cache = BlockCache::kNone;
  bool recompute = false;  // exact caches off: every pass computes all slots again
  int64_t group_len = 1;
  std::optional<int64_t> draft;  // unset: Draft()
  int64_t orders = 1;
  bool random_order = false;
  bool delay_end = false;
  bool stop_at_end = false;  // no more is written behind an end token once all before it is
  bool literal = false;      // README.md has the faults

  // What a user may choose besides the method: visit(key, value, help, bounds, methods). A key is
  // that of JSON; on command lines it has - for _.
  template <typename Self, typename Visitor>
  static void VisitFields(Self& self, Visitor& visit) {
    using enum WriteMethod;
    const FieldBounds any, tokens = Between(0, kMostTokens);
    const WriteMethods diffusion = {kLlada, kDream, kMdlm, kThreshold};
    const WriteMethods guessing = {kSpeculative, kBurst};
    TokenCuts::VisitFields(self.draw.cuts, visit);
    visit("seed", self.draw.seed, "seed of sampling", AtLeast(0));
    visit("steps", self.steps, "passes per text; 0: one per token", tokens,
          WriteMethods{kLlada, kDream, kMdlm, kBlocks, kEso});
    visit("block_length", self.block_len,
          "write blocks of N tokens from left to right; 0: all tokens at once", tokens,
          WriteMethods{kLlada, kDream, kMdlm, kThreshold, kResample});
    visit("confidence", self.confidence, "how sure a prediction is; the surest are written first",
          any, WriteMethods{kLlada, kDream, kThreshold, kResample});
    visit("random_positions", self.origin,
          "choose positions at random, then sample their tokens (Dream's algorithm \"origin\")",
          any, WriteMethods{kDream});
    visit("order_temperature", self.order_temperature,
          "sample positions by softmax(confidence / X); 0: the most confident", Between(0, 1e6),
          WriteMethods{kDream});
    visit("guidance", self.guidance,
          "classifier-free guidance: logits u + (1 + X) (c - u), c with the prompt and u without; "
          "0: off",
          Between(0, 1e3), diffusion);
    visit("threshold", self.threshold, "write every token whose confidence is at least X",
          Between(0, 1), WriteMethods{kThreshold});
    visit("cache", self.cache,
          "with --block-length, compute keys of the text before the block (prefix) or of all other "
          "text (dual) once per block; approximate, so texts can differ",
          any, diffusion);
    visit("end_last", self.delay_end, "write the end of the text after all other tokens", any,
          WriteMethods{kLlada, kDream, kThreshold, kBlocks, kResample});
    visit("group_length", self.group_len, "tokens written per pass", Between(1, kMostTokens),
          WriteMethods{kGroups, kResample});
    visit("draft", self.draft, "tokens guessed per round; 0: all (default: 5; of burst all)",
          tokens, guessing);
    visit("orders", self.orders, "with --literal: orders tried per round", Between(1, 1024),
          WriteMethods{kBurst});
    visit("random_order", self.random_order, "write in random order, not by position", any,
          WriteMethods{kGroups, kSequential, kSpeculative});
    // The first four keep exact keys of the finished blocks of block diffusion.
    visit("recompute", self.recompute,
          "keep no keys between passes; slower, does not affect results", any,
          WriteMethods{kLlada, kDream, kMdlm, kThreshold, kBlocks, kEso, kGroups, kSequential,
                       kSpeculative, kBurst});
    visit("literal", self.literal,
          "do as the released code does, its faults included; of llada with --end-last", any,
          WriteMethods{kLlada, kBurst});
  }

  int64_t Draft() const { return draft.value_or(method == WriteMethod::kBurst ? 0 : 5); }

  // InvalidArgument that lists values out of bounds and options that have no effect with the method
  // or, if there are none of these, options that contradict one another.
  absl::Status Validate() const;
  // Options that have no effect with the method become their defaults.
  void ResetIdle();
  bool operator==(const WriteOptions&) const = default;
};

// What writes.
struct WritingModel {
  const ModelConfig* model = nullptr;
  int64_t vocab_size = 0;
  ConstTensorView weights;  // [layout] in the model's dtype
  CanvasForm form;
  kernels::Backend* backend = nullptr;
  std::function<absl::Status()> before_pass = {};  // as SlotNetworkOptions has it
};

// Methods of the family, the usual one first; kLeftToRight is not among them.
WriteMethods MethodsOf(const CanvasForm& form);

// InvalidArgument unless the method is one of the form's, which the message lists, and its options
// go together, or if a canvas has no given token where the form needs one; OutOfRange if it has
// more positions than the network has learned.
absl::Status CheckCanWrite(const WritingModel& model, const std::vector<Canvas>& canvases,
                           const WriteOptions& options);

// Limit on the tokens of texts that are written together: their number times the length of the
// longest. A longer text is written alone. With 12 layers of width 768 in fp32 the keys and values
// of so many take 1.1 GiB.
inline constexpr int64_t kTokensAtOnce = int64_t{1} << 14;
// How many texts of `length` tokens WriteBlanks writes together, at least one: by kTokensAtOnce, by
// the network's activations (4 GiB), and by the distributions that guesses were drawn from (1 GiB).
int64_t TextsAtOnce(const WritingModel& model, const WriteOptions& options, int64_t length);

// Writes the blanks of all canvases by the options' method, TextsAtOnce texts at a time. No text
// depends on the others, on threads or on exact caches.
// Errors: those of CheckCanWrite, CheckFinite (slot_network.h) and before_pass; ResourceExhausted.
absl::StatusOr<std::vector<WrittenText>> WriteBlanks(const WritingModel& model,
                                                     const std::vector<Canvas>& canvases,
                                                     const WriteOptions& options,
                                                     TokenListener listener,
                                                     PassCheck check = GoesOn);

}  // namespace anyorder
