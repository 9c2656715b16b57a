#include "core/generate/any_order/likelihood.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>

#include "core/base/status.h"
#include "core/generate/any_order/blank_reader.h"
#include "core/generate/any_order/open_network.h"
#include "core/generate/any_order/ordered_text.h"

namespace anyorder {
namespace {

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
        "a causal model cannot score words given the text after them; ask about the end of the "
        "text, or use an any-order model");
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

// Scores texts read in turn, in the order that OrderedText gives their asked tokens.
class InTurn {
 public:
  InTurn(const WritingModel& model, const ScoreOptions& options)
      : model_(model), options_(options) {}

  // For any of `texts`, at most `most` at once.
  absl::Status Open(const std::vector<ScoredText>& texts, int64_t most) {
    const int64_t length = LongestOf(texts);
    const int64_t lanes =
        LanesOf(model_, std::min(options_.batch, most), length, options_.pass_bytes);
    ASSIGN_OR_RETURN(
        network_,
        OpenNetwork(model_,
                    {.lanes = lanes, .key_slots = 2 * length, .span = length, .cached = false}));
    return absl::OkStatus();
  }
  int64_t lanes() const { return network_->lanes(); }

  // At most lanes() texts, each with the order of its stream. Lanes that are left over stay empty.
  absl::StatusOr<std::vector<LogLikelihood>> Score(const std::vector<ScoredText>& texts,
                                                   const std::vector<uint64_t>& streams) {
    const WriteOptions in_order{.method = WriteMethod::kSequential,
                                .draw = {.seed = options_.seed}};
    std::vector<LanePass> passes(static_cast<size_t>(lanes()));
    std::vector<OrderedText> orders;
    for (int64_t lane = 0; lane < lanes(); ++lane) network_->Keep(lane, 0);
    for (size_t n = 0; n < texts.size(); ++n) {
      const OrderedText& order =
          orders.emplace_back(model_.form, BlankAsked(texts[n], streams[n]), in_order);
      std::vector<int32_t> tokens;
      for (int64_t i = order.known(); i < order.size(); ++i)
        tokens.push_back(texts[n].tokens[order.position(i)]);
      order.AddKnown(0, order.size(), tokens, &passes[n]);
      order.AskInTurn(order.known(), order.size(), &passes[n]);
    }
    RETURN_IF_ERROR(network_->Run(passes));
    std::vector<LogLikelihood> scores;
    std::vector<double> logits;
    for (size_t n = 0; n < texts.size(); ++n) {
      const OrderedText& order = orders[n];
      LogLikelihood& score = scores.emplace_back(LogLikelihood{.is_greedy = true});
      for (int64_t i = order.known(); i < order.size(); ++i) {
        RETURN_IF_ERROR(network_->ReadRow(static_cast<int64_t>(n), i - order.known(), &logits));
        const int32_t token = texts[n].tokens[order.position(i)];
        score.token_log_probs.push_back(LogProbability(logits, token));
        score.token_likeliest.push_back(
            LikeliestTokens(logits.data(), std::ssize(logits), texts[n].likeliest));
        score.log_prob += score.token_log_probs.back();
        score.is_greedy &= order.text().Plain(order.position(i), logits).Likeliest() == token;
      }
    }
    return scores;
  }

 private:
  const WritingModel& model_;
  const ScoreOptions& options_;
  std::unique_ptr<SlotNetwork> network_;
};

absl::StatusOr<std::vector<LogLikelihood>> ScoreInTurn(const WritingModel& model,
                                                       const std::vector<ScoredText>& texts,
                                                       const ScoreOptions& options) {
  const auto count = static_cast<int64_t>(texts.size());
  InTurn in_turn(model, options);
  RETURN_IF_ERROR(in_turn.Open(texts, count));
  std::vector<LogLikelihood> scores;
  for (int64_t begin = 0; begin < count; begin += in_turn.lanes()) {
    const std::vector<ScoredText> group(texts.begin() + begin,
                                        texts.begin() + std::min(count, begin + in_turn.lanes()));
    ASSIGN_OR_RETURN(const auto some, in_turn.Score(group, std::vector<uint64_t>(group.size(), 0)));
    scores.insert(scores.end(), some.begin(), some.end());
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

absl::StatusOr<std::vector<LogLikelihood>> ScoreByOrders(const WritingModel& model,
                                                         const std::vector<ScoredText>& texts,
                                                         const ScoreOptions& options) {
  InTurn in_turn(model, options);
  RETURN_IF_ERROR(in_turn.Open(texts, options.samples));
  std::vector<LogLikelihood> scores;
  for (const ScoredText& text : texts) {
    std::vector<double> samples;
    while (static_cast<int64_t>(samples.size()) < options.samples) {
      const int64_t left = options.samples - static_cast<int64_t>(samples.size());
      const std::vector<ScoredText> group(static_cast<size_t>(std::min(in_turn.lanes(), left)),
                                          text);
      std::vector<uint64_t> streams(group.size());
      std::iota(streams.begin(), streams.end(), samples.size());
      ASSIGN_OR_RETURN(const auto scored, in_turn.Score(group, streams));
      for (const LogLikelihood& sample : scored) samples.push_back(sample.log_prob);
    }
    SetMean(samples, &scores.emplace_back());
  }
  return scores;
}

// Asked tokens of a text that are predicted together: all, or those of a block.
struct MaskedPart {
  const ScoredText* text = nullptr;
  int64_t begin = 0, end = 0;  // of the text
  uint64_t number = 0;         // of the text's parts that are asked about
  std::vector<int64_t> asked;
  std::vector<double> samples;  // estimates of the log-probability
  bool is_likeliest = true;     // of one token

  int64_t length() const { return static_cast<int64_t>(asked.size()); }
  int64_t NumSamples(const ScoreOptions& options) const {
    return length() == 1 ? 1 : options.samples;
  }
  std::vector<int32_t> Masked(const std::vector<int64_t>& positions) const {
    std::vector<int32_t> tokens = text->tokens;
    for (const int64_t position : positions) tokens[position] = kBlank;
    return tokens;
  }
};

std::vector<MaskedPart> PartsOf(const CanvasForm& form, const ScoredText& text) {
  const auto length = static_cast<int64_t>(text.tokens.size());
  const int64_t size = form.family == CanvasFamily::kBlocks ? form.block_len : length;
  std::vector<MaskedPart> parts;
  for (const int64_t position : text.asked) {
    const int64_t begin = position / size * size;
    if (parts.empty() || parts.back().begin != begin)
      parts.push_back({&text, begin, std::min(begin + size, length), parts.size()});
    parts.back().asked.push_back(position);
  }
  return parts;
}

// The passes of parts, `lanes` samples at once. With blocks all parts are of one text, and come in
// its order: the reader keeps the blocks before.
class MaskScorer {
 public:
  MaskScorer(const WritingModel& model, const ScoreOptions& options, int64_t lanes, int64_t length)
      : model_(model), options_(options), lanes_(lanes), length_(length) {}

  // The lanes that all samples of the parts need, at most the batch.
  static int64_t LanesFor(const WritingModel& model, const ScoreOptions& options,
                          const std::vector<std::vector<MaskedPart>>& texts) {
    int64_t all = 0;
    int64_t most = 0;
    for (const std::vector<MaskedPart>& parts : texts) {
      for (const MaskedPart& part : parts) {
        all += part.NumSamples(options);
        most = std::max(most, part.NumSamples(options));
      }
    }
    return std::min(options.batch, model.form.family == CanvasFamily::kBlocks ? most : all);
  }

  // Fills the samples of all parts. Those of several share passes.
  absl::Status Estimate(std::vector<std::vector<MaskedPart>>& texts) {
    std::vector<Sample> group;
    for (std::vector<MaskedPart>& parts : texts) {
      for (MaskedPart& part : parts) {
        for (int64_t i = 0; i < part.NumSamples(options_); ++i) {
          group.push_back({&part, DrawMask(part, i)});
          if (static_cast<int64_t>(group.size()) == lanes_) RETURN_IF_ERROR(Take(group));
        }
        // All lanes read the same block.
        if (has_blocks()) RETURN_IF_ERROR(Take(group));
      }
    }
    return Take(group);
  }

  // Whether the most confident token of a pass is always the text's. The parts of a text with
  // blocks in its order, and not after Estimate: the reader does not go back.
  absl::StatusOr<bool> IsGreedy(MaskedPart& part) {
    std::vector<int64_t> blanks = part.asked;
    std::vector<double> logits;
    while (!blanks.empty()) {
      RETURN_IF_ERROR(Read({{&part, blanks}}));
      size_t best = 0;
      double most = -1;
      int32_t token = 0;
      for (size_t i = 0; i < blanks.size(); ++i) {
        RETURN_IF_ERROR(reader_->Row(0, static_cast<int64_t>(i), &logits));
        const TokenDistribution plain = Plain(logits);
        const int32_t likeliest = plain.Likeliest();
        if (plain.Probability(likeliest) <= most) continue;
        most = plain.Probability(likeliest);
        token = likeliest;
        best = i;
      }
      if (token != part.text->tokens[blanks[best]]) return false;
      blanks.erase(blanks.begin() + static_cast<int64_t>(best));
    }
    return true;
  }

 private:
  struct Sample {
    MaskedPart* part;
    std::vector<int64_t> mask;
  };

  bool has_blocks() const { return model_.form.family == CanvasFamily::kBlocks; }
  static TokenDistribution Plain(const std::vector<double>& logits) {
    return {{}, logits, [](int32_t) { return true; }};
  }

  // Sample `index` of the part: how many masks, evenly spread over 1..L, then which. Parts of one
  // text draw apart.
  std::vector<int64_t> DrawMask(const MaskedPart& part, int64_t index) const {
    const auto count = static_cast<double>(part.NumSamples(options_));
    const auto length = static_cast<double>(part.asked.size());
    RandomStream shared(options_.seed, RandomPurpose::kWritingOrder, 2 * part.number, 0);
    double place = shared.Uniform() + static_cast<double>(index) / count;
    place -= std::floor(place);
    const auto masks = std::min(part.asked.size(), 1 + static_cast<size_t>(place * length));
    RandomStream draws(options_.seed, RandomPurpose::kWritingOrder, 2 * part.number + 1,
                       static_cast<uint64_t>(index));
    std::vector<int64_t> order = part.asked;
    DrawFirst(static_cast<int64_t>(masks), draws, order.begin(), order.end());
    order.resize(masks);
    std::sort(order.begin(), order.end());
    return order;
  }

  // Asks for each sample's masks in a lane of its own; lanes that are left over ask nothing. The
  // reader holds their logits until the next Read.
  absl::Status Read(const std::vector<Sample>& group) {
    if (reader_ == nullptr) {
      // Of a text that is longer than what is seen, kept keys would remember blocks that are not.
      const bool recompute = has_blocks() && length_ > model_.form.seq_len;
      ASSIGN_OR_RETURN(reader_,
                       BlankReader::Create(model_, lanes_, length_, BlockCache::kNone, recompute));
    }
    std::vector<std::vector<int32_t>> texts;
    std::vector<BlankQuestion> questions;
    for (const Sample& one : group) {
      texts.push_back(one.part->Masked(one.mask));
      questions.push_back({one.part->begin, one.part->end, one.mask});
    }
    texts.resize(static_cast<size_t>(lanes_));
    questions.resize(static_cast<size_t>(lanes_));
    return reader_->Read(texts, questions);
  }

  // Adds each sample to those of its part: L / n times the sum over its n masks. Then the group is
  // empty.
  absl::Status Take(std::vector<Sample>& group) {
    if (group.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(Read(group));
    std::vector<double> logits;
    for (size_t n = 0; n < group.size(); ++n) {
      MaskedPart& part = *group[n].part;
      const std::vector<int64_t>& mask = group[n].mask;
      double sum = 0;
      for (size_t i = 0; i < mask.size(); ++i) {
        RETURN_IF_ERROR(reader_->Row(static_cast<int64_t>(n), static_cast<int64_t>(i), &logits));
        sum += LogProbability(logits, part.text->tokens[mask[i]]);
      }
      part.samples.push_back(sum * static_cast<double>(part.length()) /
                             static_cast<double>(mask.size()));
      if (part.length() == 1)
        part.is_likeliest = Plain(logits).Likeliest() == part.text->tokens[part.asked[0]];
    }
    group.clear();
    return absl::OkStatus();
  }

  const WritingModel& model_;
  const ScoreOptions& options_;
  const int64_t lanes_;
  const int64_t length_;
  std::unique_ptr<BlankReader> reader_;  // once there is a question
};

// The sum of a text's parts, whose samples are there.
absl::StatusOr<LogLikelihood> AddParts(std::vector<MaskedPart>& parts, MaskScorer& scorer) {
  LogLikelihood score;
  for (const MaskedPart& part : parts) {
    if (part.length() > 1) {
      SetMean(part.samples, &score);
    } else {
      score.log_prob += part.samples[0];
      score.token_log_probs.push_back(part.samples[0]);
    }
  }
  if (!score.is_exact) score.token_log_probs.clear();
  score.is_greedy = score.is_exact || parts[0].text->wants_greedy;
  for (MaskedPart& part : parts) {
    if (!score.is_greedy) break;
    score.is_greedy = part.is_likeliest;
    if (part.length() > 1) {
      ASSIGN_OR_RETURN(score.is_greedy, scorer.IsGreedy(part));
    }
  }
  return score;
}

absl::StatusOr<std::vector<LogLikelihood>> ScoreByMasks(const WritingModel& model,
                                                        const std::vector<ScoredText>& texts,
                                                        const ScoreOptions& options) {
  // Texts whose readers keep nothing share passes.
  const auto shared =
      static_cast<int64_t>(model.form.family == CanvasFamily::kBlocks ? 1 : texts.size());
  std::vector<LogLikelihood> scores;
  for (auto first = texts.begin(); first != texts.end(); first += shared) {
    const std::vector<ScoredText> group(first, first + shared);
    std::vector<std::vector<MaskedPart>> parts;
    for (const ScoredText& text : group) parts.push_back(PartsOf(model.form, text));
    const int64_t length = LongestOf(group);
    const int64_t lanes =
        LanesOf(model, MaskScorer::LanesFor(model, options, parts), length, options.pass_bytes);
    // Its network's memory is free before there is another.
    RETURN_IF_ERROR(MaskScorer(model, options, lanes, length).Estimate(parts));
    MaskScorer greedy(model, options, /*lanes=*/1, length);
    for (std::vector<MaskedPart>& own : parts) {
      ASSIGN_OR_RETURN(scores.emplace_back(), AddParts(own, greedy));
    }
  }
  return scores;
}

}  // namespace

absl::StatusOr<std::vector<LogLikelihood>> ScoreTexts(const WritingModel& model,
                                                      const std::vector<ScoredText>& texts,
                                                      const ScoreOptions& options) {
  if (texts.empty()) return std::vector<LogLikelihood>();
  for (const ScoredText& text : texts) RETURN_IF_ERROR(CheckCanScore(model.form, text));
  if (model.form.family == CanvasFamily::kTwoStream || model.form.predicts_next())
    return ScoreInTurn(model, texts, options);
  if (model.form.family != CanvasFamily::kEso) return ScoreByMasks(model, texts, options);
  return ScoreByOrders(model, texts, options);
}

}  // namespace anyorder
