#include "core/generate/any_order/likelihood.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "core/base/status.h"
#include "core/generate/any_order/blank_reader.h"
#include "core/generate/any_order/ordered_text.h"

namespace anyorder {
namespace {

int64_t LongestOf(const std::vector<ScoredText>& texts) {
  int64_t length = 0;
  for (const ScoredText& text : texts)
    length = std::max(length, static_cast<int64_t>(text.tokens.size()));
  return length;
}

Canvas BlankAsked(const ScoredText& text, uint64_t stream) {
  Canvas canvas{text.tokens, stream};
  for (const int64_t position : text.asked) canvas.tokens[position] = kBlank;
  return canvas;
}

absl::Status CheckCanScore(const CanvasForm& form, const ScoredText& text) {
  const auto length = static_cast<int64_t>(text.tokens.size());
  const bool is_tail = text.asked.front() == length - static_cast<int64_t>(text.asked.size());
  if (form.family == CanvasFamily::kCausal && !is_tail) {
    return absl::FailedPreconditionError(
        "a causal model cannot say how probable words are given those behind them; ask about the "
        "end of the text, or use an any-order model");
  }
  if (form.family == CanvasFamily::kEso && (form.eso.clean_see_all || form.eso.masks_see_all)) {
    return absl::FailedPreconditionError(
        "Eso-LM scores single texts in its form \"b\" only (sampling.eso_form); `anyorder eval` "
        "gives the bound of a dataset in all forms");
  }
  const bool has_given = static_cast<int64_t>(text.asked.size()) < length;
  const bool is_missing =
      form.family == CanvasFamily::kPairs ? !has_given : text.asked.front() == 0;
  if (!form.first_given || !is_missing) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the text begins with a token that is asked about, but this model has not learned to predict "
      "the first one");
}

// In-turn reads of texts in the order that OrderedText gives their asked tokens.
class InTurn {
 public:
  InTurn(const WritingModel& model, WriteOptions options)
      : model_(model), options_(std::move(options)) {}

  absl::Status Run(const std::vector<ScoredText>& texts, const std::vector<uint64_t>& streams) {
    std::vector<LanePass> passes;
    orders_.clear();
    for (size_t n = 0; n < texts.size(); ++n) {
      orders_.emplace_back(model_.form, BlankAsked(texts[n], streams[n]), options_);
      const OrderedText& order = orders_.back();
      std::vector<int32_t> tokens;
      for (int64_t i = order.known(); i < order.size(); ++i)
        tokens.push_back(texts[n].tokens[order.position(i)]);
      LanePass& pass = passes.emplace_back();
      order.AddKnown(0, order.size(), tokens, &pass);
      order.AskInTurn(order.known(), order.size(), &pass);
    }
    const int64_t length = LongestOf(texts);
    ANYORDER_ASSIGN_OR_RETURN(network_,
                              SlotNetwork::Create(*model_.model, model_.vocab_size, model_.weights,
                                                  {.lanes = static_cast<int64_t>(texts.size()),
                                                   .key_slots = 2 * length,
                                                   .span = length,
                                                   .cached = false},
                                                  *model_.backend));
    return network_->Run(passes);
  }

  // Of text n of the last Run.
  LogLikelihood Read(const ScoredText& text, size_t n) {
    const OrderedText& order = orders_[n];
    LogLikelihood score{.is_greedy = true};
    std::vector<double> logits;
    for (int64_t i = order.known(); i < order.size(); ++i) {
      network_->ReadRow(static_cast<int64_t>(n), i - order.known(), &logits);
      const int32_t token = text.tokens[order.position(i)];
      score.token_log_probs.push_back(LogProbability(logits, token));
      score.log_prob += score.token_log_probs.back();
      score.is_greedy &= order.text().Plain(order.position(i), logits).Likeliest() == token;
    }
    return score;
  }

 private:
  const WritingModel& model_;
  const WriteOptions options_;
  std::vector<OrderedText> orders_;
  std::unique_ptr<SlotNetwork> network_;
};

WriteOptions InTurnOptions(const ScoreOptions& options) {
  WriteOptions order;
  order.method = WriteMethod::kSequential;
  order.draw.seed = options.seed;
  return order;
}

absl::StatusOr<std::vector<LogLikelihood>> ScoreInTurn(const WritingModel& model,
                                                       const std::vector<ScoredText>& texts,
                                                       const ScoreOptions& options) {
  InTurn in_turn(model, InTurnOptions(options));
  std::vector<LogLikelihood> scores;
  for (size_t begin = 0; begin < texts.size(); begin += static_cast<size_t>(options.batch)) {
    const size_t end = std::min(texts.size(), begin + static_cast<size_t>(options.batch));
    const std::vector<ScoredText> group(texts.begin() + static_cast<int64_t>(begin),
                                        texts.begin() + static_cast<int64_t>(end));
    ANYORDER_RETURN_IF_ERROR(in_turn.Run(group, std::vector<uint64_t>(group.size(), 0)));
    for (size_t n = 0; n < group.size(); ++n) scores.push_back(in_turn.Read(group[n], n));
  }
  return scores;
}

// The mean of samples, and its standard error as if they were independent. Counts of masks that are
// spread evenly make it smaller than that.
void SetMean(const std::vector<double>& samples, LogLikelihood* score) {
  const auto n = static_cast<double>(samples.size());
  const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / n;
  double squares = 0;
  for (const double sample : samples) squares += (sample - mean) * (sample - mean);
  score->log_prob += mean;
  const double variance =
      samples.size() < 2 ? std::numeric_limits<double>::infinity() : squares / (n - 1) / n;
  score->standard_error = std::hypot(score->standard_error, std::sqrt(variance));
  score->is_exact = false;
}

absl::StatusOr<LogLikelihood> ScoreByOrders(const WritingModel& model, const ScoredText& text,
                                            const ScoreOptions& options) {
  InTurn in_turn(model, InTurnOptions(options));
  std::vector<double> samples;
  while (static_cast<int64_t>(samples.size()) < options.samples) {
    const int64_t left = options.samples - static_cast<int64_t>(samples.size());
    const std::vector<ScoredText> group(static_cast<size_t>(std::min(options.batch, left)), text);
    std::vector<uint64_t> streams(group.size());
    std::iota(streams.begin(), streams.end(), samples.size());
    ANYORDER_RETURN_IF_ERROR(in_turn.Run(group, streams));
    for (size_t n = 0; n < group.size(); ++n) samples.push_back(in_turn.Read(text, n).log_prob);
  }
  LogLikelihood score;
  SetMean(samples, &score);
  return score;
}

// One part of a text of a masked network: asked tokens that are predicted together.
class MaskedPart {
 public:
  MaskedPart(const WritingModel& model, const ScoredText& text, const ScoreOptions& options,
             int64_t begin, int64_t end)
      : model_(model), text_(text), options_(options), begin_(begin), end_(end) {
    for (const int64_t position : text.asked)
      if (position >= begin && position < end) asked_.push_back(position);
  }

  bool empty() const { return asked_.empty(); }

  // Adds the part's estimate to `score`.
  absl::Status Add(LogLikelihood* score) {
    const auto length = static_cast<int64_t>(asked_.size());
    const int64_t count = length == 1 ? 1 : options_.samples;
    std::vector<double> samples;
    for (int64_t first = 0; first < count; first += options_.batch) {
      const int64_t end = std::min(count, first + options_.batch);
      std::vector<std::vector<int64_t>> masks;
      for (int64_t i = first; i < end; ++i) masks.push_back(DrawMask(i, count));
      ANYORDER_ASSIGN_OR_RETURN(const std::vector<double> log_probs, LogProbs(masks));
      for (size_t i = 0; i < masks.size(); ++i) {
        samples.push_back(log_probs[i] * static_cast<double>(length) /
                          static_cast<double>(masks[i].size()));
      }
    }
    if (length > 1) {
      SetMean(samples, score);
    } else {
      score->log_prob += samples[0];
    }
    return absl::OkStatus();
  }

  // Whether the most confident token of a pass is always the text's.
  absl::StatusOr<bool> IsGreedy() {
    std::vector<int64_t> blanks = asked_;
    while (!blanks.empty()) {
      ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<BlankReader> reader, Reader(1));
      ANYORDER_RETURN_IF_ERROR(reader->Read({Masked(blanks)}, {{begin_, end_, blanks}}));
      size_t best = 0;
      double most = -1;
      int32_t token = 0;
      std::vector<double> logits;
      for (size_t i = 0; i < blanks.size(); ++i) {
        reader->Row(0, static_cast<int64_t>(i), &logits);
        const TokenDistribution plain({}, logits, [](int32_t) { return true; });
        const int32_t likeliest = plain.Likeliest();
        if (plain.Probability(likeliest) <= most) continue;
        most = plain.Probability(likeliest);
        token = likeliest;
        best = i;
      }
      if (token != text_.tokens[blanks[best]]) return false;
      blanks.erase(blanks.begin() + static_cast<int64_t>(best));
    }
    return true;
  }

 private:
  // Sample `index` of `count`: how many masks, evenly spread over 1..L, then which.
  std::vector<int64_t> DrawMask(int64_t index, int64_t count) const {
    const auto length = static_cast<double>(asked_.size());
    RandomStream shared(options_.seed, RandomPurpose::kWritingOrder, 0, 0);
    double place = shared.Uniform() + static_cast<double>(index) / static_cast<double>(count);
    place -= std::floor(place);
    const auto masks = std::min(asked_.size(), 1 + static_cast<size_t>(place * length));
    RandomStream draws(options_.seed, RandomPurpose::kWritingOrder, 1,
                       static_cast<uint64_t>(index));
    std::vector<int64_t> order = asked_;
    for (size_t i = 0; i < masks; ++i)
      std::swap(order[i], order[i + draws.Below64(order.size() - i)]);
    order.resize(masks);
    std::sort(order.begin(), order.end());
    return order;
  }

  std::vector<int32_t> Masked(const std::vector<int64_t>& positions) const {
    std::vector<int32_t> tokens = text_.tokens;
    for (const int64_t position : positions) tokens[position] = kBlank;
    return tokens;
  }

  absl::StatusOr<std::unique_ptr<BlankReader>> Reader(size_t texts) const {
    return BlankReader::Create(model_, static_cast<int64_t>(texts),
                               static_cast<int64_t>(text_.tokens.size()), BlockCache::kNone,
                               /*recompute=*/true);
  }

  // The sum over each mask's tokens, given the others.
  absl::StatusOr<std::vector<double>> LogProbs(const std::vector<std::vector<int64_t>>& masks) {
    ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<BlankReader> reader, Reader(masks.size()));
    std::vector<std::vector<int32_t>> texts;
    std::vector<BlankQuestion> questions;
    for (const std::vector<int64_t>& mask : masks) {
      texts.push_back(Masked(mask));
      questions.push_back({begin_, end_, mask});
    }
    ANYORDER_RETURN_IF_ERROR(reader->Read(texts, questions));
    std::vector<double> sums(masks.size(), 0.0);
    std::vector<double> logits;
    for (size_t n = 0; n < masks.size(); ++n) {
      for (size_t i = 0; i < masks[n].size(); ++i) {
        reader->Row(static_cast<int64_t>(n), static_cast<int64_t>(i), &logits);
        sums[n] += LogProbability(logits, text_.tokens[masks[n][i]]);
      }
    }
    return sums;
  }

  const WritingModel& model_;
  const ScoredText& text_;
  const ScoreOptions& options_;
  const int64_t begin_, end_;
  std::vector<int64_t> asked_;
};

absl::StatusOr<LogLikelihood> ScoreByMasks(const WritingModel& model, const ScoredText& text,
                                           const ScoreOptions& options) {
  const auto length = static_cast<int64_t>(text.tokens.size());
  const int64_t size = model.form.family == CanvasFamily::kBlocks ? model.form.block_len : length;
  LogLikelihood score{.is_greedy = text.wants_greedy};
  for (int64_t begin = 0; begin < length; begin += size) {
    MaskedPart part(model, text, options, begin, std::min(begin + size, length));
    if (part.empty()) continue;
    ANYORDER_RETURN_IF_ERROR(part.Add(&score));
    if (!score.is_greedy) continue;
    ANYORDER_ASSIGN_OR_RETURN(score.is_greedy, part.IsGreedy());
  }
  return score;
}

}  // namespace

bool ScoresExactly(const CanvasForm& form) {
  return form.family == CanvasFamily::kTwoStream || form.predicts_next() ||
         (form.family == CanvasFamily::kBlocks && form.block_len == 1);
}

absl::StatusOr<std::vector<LogLikelihood>> ScoreTexts(const WritingModel& model,
                                                      const std::vector<ScoredText>& texts,
                                                      const ScoreOptions& options) {
  for (const ScoredText& text : texts) ANYORDER_RETURN_IF_ERROR(CheckCanScore(model.form, text));
  if (model.form.family == CanvasFamily::kTwoStream || model.form.predicts_next())
    return ScoreInTurn(model, texts, options);
  std::vector<LogLikelihood> scores;
  for (const ScoredText& text : texts) {
    ANYORDER_ASSIGN_OR_RETURN(scores.emplace_back(), model.form.family == CanvasFamily::kEso
                                                         ? ScoreByOrders(model, text, options)
                                                         : ScoreByMasks(model, text, options));
  }
  return scores;
}

}  // namespace anyorder
