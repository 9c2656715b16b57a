// What a model does with texts: continues them, fills their blanks, says how probable they are.
// `generate`, `fill`, `chat` and `serve` all call this interface, so that the same request gets the
// same answer from each of them.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/generate/any_order/write_options.h"

namespace anyorder::launcher {

inline constexpr int64_t kDefaultMaxTokens = 128;

// Units of numbers of which `serve` allows less than the field (RequestLimits).
inline constexpr char kUnitTokens[] = "tokens", kUnitTexts[] = "texts", kUnitMasks[] = "masks";

// A field that several requests have: how many masks a lower bound is the mean of.
template <typename Value, typename Visitor>
void VisitBoundSamples(Value& bound_samples, Visitor& visit) {
  visit("bound_samples", bound_samples,
        "random masks per text, for models that can only estimate a lower bound of its probability",
        Between(1, 1 << 20, kUnitMasks));
}

// Asked before each pass of the network that is for one request, if set: what is not OK ends the
// request, and is its answer.
using WantedCheck = std::function<absl::Status()>;

// What could stand in a token's place. What is no text is called as in the vocabulary, "<eod>".
struct ShownAlternative {
  int32_t token = 0;
  std::string piece;
  double log_prob = 0;
};

// A token as it is written, in words.
struct ShownToken {
  int64_t pass = 0;      // of the network, from 1
  int64_t position = 0;  // from 0, the prompt's tokens included
  std::string piece;     // its text, with the space before it if it has one
  double log_prob = 0;   // nats
  double confidence = 0;
  int32_t token = 0;                             // its id
  std::vector<ShownAlternative> likeliest = {};  // CompletionRequest::likeliest
};

// Search for the likeliest texts (core/generate/beam_search.h).
struct BeamRequest {
  int64_t width = 5;  // 1: greedy search
  double length_penalty = 0;
  bool stop_first = false;  // SearchStop::kFirst
  bool operator==(const BeamRequest&) const = default;
};

struct Completion {
  // What follows the prompt, with the space between them. It lacks that space if the prompt ends
  // with one that its tokens do not have, or if the vocabulary puts one before every text.
  std::string text;
  double log_prob = 0;  // nats; of the tokens, each given what the model saw when it wrote it
  double score = 0;     // log_prob, of beams with their length penalty
  int64_t tokens = 0;   // without a gap behind the prompt, those of a stop word included
  bool ended = false;   // by the end token or a stop word; else it is as long as it may be
  int64_t passes = 0;   // of the network; 0: beams
  // Of the prompt's tokens. Of prompt_tokens they join to the text that they stand for.
  std::vector<std::string> prompt_pieces;
  // Those tokens if the request scores them, each given those before it. The log-probability of the
  // first is no number.
  std::vector<ShownToken> prompt;
  std::vector<ShownToken> written;  // in the order of writing; none of beams
};

struct CompletionRequest {
  std::string prompt;
  // Instead of that text: its tokens, each below facts().vocab_size.
  std::optional<std::vector<int32_t>> prompt_tokens;
  // What is written is a text by itself, such as an answer: it begins without a space.
  bool begins_text = false;
  bool only_prompt = false;    // nothing is written
  bool scores_prompt = false;  // Completion::prompt; of models that score exactly
  // How many alternatives are told of each token of the prompt's score, and of each that is written
  // from left to right.
  int64_t likeliest = 0;
  int64_t max_tokens = 0;   // the end token included; 0: kDefaultMaxTokens, or what fits
  int64_t min_tokens = 0;   // before the end token; kMostTokens: it never ends
  int64_t block_ngram = 0;  // left-to-right: no n tokens in a row come twice; 0: they may
  int64_t samples = 1;      // of beams: the best so many that are found
  // Left-to-right: texts are searched for, not drawn, and nobody hears of their tokens.
  std::optional<BeamRequest> beams;
  // The number of the first sample: texts of equal prompts and seeds differ by it.
  uint64_t first_stream = 0;
  WriteOptions write;
  std::vector<std::string> stop;  // the text ends before the first of them; none is empty
  // Too many tokens for the model are not refused: max_tokens becomes half of what it reads at
  // most, and the prompt loses its first ones.
  bool cut_context = false;
  int64_t max_prompt = kMostTokens;  // more of it are too long
  // Called as tokens are written, if set; `sample` counts from 0. Pieces are as in the text: the
  // first lacks the space that the text lacks.
  std::function<void(int64_t sample, const ShownToken& token)> listener;
  WantedCheck check_wanted;
  std::function<bool()> is_wanted;  // asked after each pass for each text in any order, if set
  // Called with the answer as soon as it is there, if set: not when those of other requests are.
  std::function<void(absl::StatusOr<std::vector<Completion>> answer)> done;
};

struct FillRequest {
  // Blanks: <mask> and ___ (three or more) are of unknown length, {n} of n tokens. {{words}}: not
  // blank, but what is asked for is how probable these words are there, given the rest; a text has
  // blanks or such words, not both. blank_text.h has escapes.
  std::string text;
  int64_t alternatives = 1;  // fewer if fewer are found; of {{words}} there is one
  int64_t max_blank_tokens = 8;
  int64_t fit_tokens = 1;  // where the text ends with the blank, the end of the document fits
  // How candidates of different length compare: blank_lengths.h, LengthRule.
  double length_penalty = 1;
  double mean_length = 0;
  int64_t bound_samples = 128;
  // How candidates are written; they are ordered by their score, whatever wrote them. With
  // temperature 0 the first is the likeliest by the method, and the others are drawn with
  // temperature 1. Texts with {{words}} use only the seed.
  WriteOptions write = {.draw = {.cuts = {.temperature = 0}}};
  int64_t max_prompt = kMostTokens;  // tokens around the blanks; more are too long
  WantedCheck check_wanted;

  // All but the text and `write`.
  template <typename Self, typename Visitor>
  static void VisitFields(Self& self, Visitor& visit) {
    visit("alternatives", self.alternatives, "different texts per line, the most probable first",
          Between(1, 1024, kUnitTexts));
    visit("max_blank_tokens", self.max_blank_tokens, "most tokens of a blank of unknown length",
          Between(1, kMostTokens, kUnitTokens));
    visit("fit_tokens", self.fit_tokens,
          "tokens behind a blank of unknown length whose probability counts, too; 0: none",
          Between(0, kMostTokens, kUnitTokens));
    visit("length_penalty", self.length_penalty,
          "compare texts by log-probability / tokens^X; 0: by log-probability", Between(0, 100));
    visit("mean_length", self.mean_length,
          "length prior: blanks have X tokens on average (geometric, X > 1); 0: none",
          Between(0, 1e6));
    VisitBoundSamples(self.bound_samples, visit);
  }
};

struct FilledText {
  std::vector<std::string> blanks;  // what was put into each
  std::string text;                 // the whole
  std::vector<int64_t> lengths;     // of the blanks, in tokens
  double log_prob = 0;              // nats, of all blanks together given the text around them
  double standard_error = 0;        // of log_prob where it is an estimate; else 0
  bool is_exact = true;             // whether it is the model's own probability; else a lower bound
  double score = 0;                 // what they are ordered by (LengthRule)
  std::vector<ShownToken> written;
};

struct ScoreRequest {
  std::string context;  // may be empty
  std::string continuation;
  int64_t bound_samples = 128;
  uint64_t seed = 1;          // equal seeds: common draws, so that differences vary less
  bool wants_greedy = false;  // of estimates, where it costs a pass a token
  bool cut_context = false;   // of a text that is too long: its first tokens; else it is refused
  int64_t max_prompt = kMostTokens;  // of context and continuation; more are too long
  WantedCheck check_wanted = {};
};

struct TextScore {
  double log_prob = 0;  // nats, of the continuation given the context
  double standard_error = 0;
  bool is_exact = true;
  bool is_greedy = false;  // whether the continuation is what the model would write itself
  int64_t tokens = 0;      // of the continuation
  int64_t bytes = 0;
};

// Of models that remember: so many times what they learned to read at once may be read.
inline constexpr int64_t kMemoryReach = 16;

struct ModelFacts {
  std::string run_dir;
  int64_t step = 0;
  std::string objective;
  int64_t seq_len = 0;  // tokens of a text at most
  int64_t vocab_size = 0;
  // Tokens of a text that others may ask to be read, unless they are told otherwise: as many as the
  // model has learned to read, or kMemoryReach times as many where it remembers what came before.
  int64_t max_prompt = 0;
  std::vector<std::string> methods;  // WriteMethod's names that the model can use, default first
  bool can_score_exactly = false;
  std::string chat_template;  // `prep --chat-template` of its examples; "" if it has none
  // Whether prompts may have parts of a chat template between data::kTemplateMark, in which special
  // tokens are meant; else a template is plain text.
  bool takes_template_marks = false;
  // What closes an answer by the tokenizer's own chat template; "" if only the end token does.
  std::string own_closing;
};

// Completions that are drawn from left to right side by side: requests come and go between steps.
// For the thread that asks the service, which it borrows.
class CompletionLanes {
 public:
  virtual ~CompletionLanes() = default;

  // Whether `request` can be written so at all.
  static bool Take(const CompletionRequest& request) {
    return request.write.method == WriteMethod::kLeftToRight && !request.beams &&
           !request.only_prompt;
  }
  // `request` is answered by its `done`, in a later Step; it is borrowed until then. Its texts wait
  // for lanes. Complete's errors, of this request alone. REQUIRES: Take.
  virtual absl::Status Add(const CompletionRequest& request) = 0;
  // Texts that are not finished.
  virtual int64_t num_texts() const = 0;
  // A token of each text that has a lane. What fails is the answer of those that need it.
  virtual void Step() = 0;
};

// Not thread-safe.
class TextService {
 public:
  virtual ~TextService() = default;

  virtual const ModelFacts& facts() const = 0;
  virtual absl::StatusOr<int64_t> CountTokens(const std::string& text) = 0;
  // One result a request, in their order, `samples` completions each; of beams the best first, and
  // fewer if fewer are found. Requests of one call share the network's passes, whatever their seeds
  // and lengths; no answer depends on the others.
  // Errors: InvalidArgument that names the request and its fault; OutOfRange for one that is too
  // long for the model; ResourceExhausted for want of memory; `check_wanted`'s, if it ends the
  // call. Else the completions of a request that is no longer wanted may be incomplete.
  virtual absl::StatusOr<std::vector<std::vector<Completion>>> Complete(
      const std::vector<CompletionRequest>& requests) = 0;
  // Lanes for `most_texts` texts.
  virtual std::unique_ptr<CompletionLanes> OpenLanes(int64_t most_texts) = 0;
  // The alternatives; none if nothing but empty words was found. Errors: as above;
  // FailedPrecondition for a model that fills no blanks.
  virtual absl::StatusOr<std::vector<FilledText>> Fill(const FillRequest& request) = 0;
  virtual absl::StatusOr<TextScore> Score(const ScoreRequest& request) = 0;
};

}  // namespace anyorder::launcher
