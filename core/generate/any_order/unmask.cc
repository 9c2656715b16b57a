#include "core/generate/any_order/unmask.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "core/base/status.h"
#include "core/generate/any_order/blank_reader.h"
#include "core/generate/any_order/lane_text.h"

namespace anyorder {
namespace {

// Where a schedule's times end: MDLM's and Dream's samplers stop short of 0 and write what is left
// in the last step.
constexpr double kMdlmLastTime = 1e-5;
constexpr double kDreamLastTime = 1e-3;

// What a blank's token would be.
struct Proposal {
  int64_t position = 0;
  int32_t token = 0;
  double log_prob = 0;
  double confidence = 0;  // shown
  double key = 0;         // ordered by
};

// One text: its parts one after the other, and in each the steps.
class UnmaskedText {
 public:
  UnmaskedText(const WritingModel& model, const Canvas& canvas, const WriteOptions& options)
      : form_(model.form), options_(options), text_(canvas, options.draw) {
    LayOutParts();
    BeginPart();
  }

  LaneText& text() { return text_; }
  bool is_done() const { return text_.is_done(); }
  // MDLM: nothing was written since the logits came, so they still hold.
  bool needs_logits() const { return !is_done() && !has_logits_; }
  BlankQuestion Question() const {
    if (is_done()) return {};
    return {begin_, end_, text_.BlanksIn(begin_, end_)};
  }
  // The text as a network without condition sees it: nothing that was given.
  std::vector<int32_t> Unconditional() const {
    std::vector<int32_t> tokens = text_.tokens();
    for (const int64_t position : text_.given()) tokens[position] = kBlank;
    return tokens;
  }

  // One step. `rows`: logits of the question's blanks; `plain` those without guidance.
  void Step(const std::vector<std::vector<double>>& rows,
            const std::vector<std::vector<double>>& plain,
            absl::FunctionRef<void(const WrittenToken&)> tell) {
    const std::vector<int64_t> blanks = text_.BlanksIn(begin_, end_);
    const std::vector<size_t> chosen =
        IsByChance() ? ChooseByChance(blanks) : ChooseByConfidence(blanks, rows);
    for (const size_t i : chosen) {
      const Proposal one = proposals_.empty() ? Propose(blanks[i], rows[i]) : proposals_[i];
      tell(text_.Write(one.position, one.token, LogProbability(plain[i], one.token),
                       one.confidence));
    }
    has_logits_ = chosen.empty();
    proposals_.clear();
    ++step_;
    ++all_steps_;
    if (options_.stop_at_end) text_.StopAtEnd(form_.end_token);
    if (text_.BlanksIn(begin_, end_).empty()) BeginPart();
  }

 private:
  bool is_block_diffusion() const { return form_.family == CanvasFamily::kBlocks; }
  // Each token of a part is written or not by a draw of its own.
  bool IsByChance() const {
    return options_.method == WriteMethod::kMdlm ||
           (options_.method == WriteMethod::kDream && options_.origin) ||
           (options_.method == WriteMethod::kBlocks && options_.steps > 0);
  }

  // Parts that have blanks, as [begin, end).
  void LayOutParts() {
    if (text_.is_done()) return;
    int64_t size = text_.length();
    int64_t begin = 0;
    if (is_block_diffusion()) {
      size = form_.block_len;
      begin = text_.blanks().front() / size * size;
    } else if (options_.block_len > 0) {
      size = options_.block_len;
      begin = text_.blanks().front();
    }
    for (; begin < text_.length(); begin += size) {
      const int64_t end = std::min(begin + size, text_.length());
      if (!text_.BlanksIn(begin, end).empty()) parts_.push_back({begin, end});
    }
  }

  void BeginPart() {
    if (next_part_ == parts_.size()) return;
    begin_ = parts_[next_part_].first;
    end_ = parts_[next_part_].second;
    const auto blanks = static_cast<int64_t>(text_.BlanksIn(begin_, end_).size());
    const auto num_parts = static_cast<int64_t>(parts_.size());
    const auto part = static_cast<int64_t>(next_part_);
    // As many for each part, the first ones one more.
    steps_ = options_.steps / num_parts + (part < options_.steps % num_parts ? 1 : 0);
    if (options_.steps == 0) steps_ = blanks;
    steps_ = std::max<int64_t>(1, steps_);
    part_blanks_ = blanks;
    step_ = 0;
    has_logits_ = false;
    ++next_part_;
  }

  double Time(int64_t step) const {
    double last = 0;
    if (options_.method == WriteMethod::kDream) last = kDreamLastTime;
    if (options_.method == WriteMethod::kMdlm) last = kMdlmLastTime;
    return 1 - (1 - last) * static_cast<double>(step) / static_cast<double>(steps_);
  }
  // The share of blanks that is written between two times: of those masked at t, s / t still are at
  // s.
  double Share() const { return 1 - Time(step_ + 1) / Time(step_); }
  // MDLM has a step more, which takes the likeliest tokens.
  bool IsRest() const { return options_.method == WriteMethod::kMdlm && step_ == steps_; }
  bool WritesAll() const {
    return IsRest() || (options_.method != WriteMethod::kMdlm && step_ + 1 >= steps_);
  }

  std::vector<size_t> ChooseByChance(const std::vector<int64_t>& blanks) const {
    std::vector<size_t> chosen;
    for (size_t i = 0; i < blanks.size(); ++i) {
      const double u = Draws(RandomPurpose::kWritingOrder, blanks[i]).Uniform();
      if (WritesAll() || u < Share()) chosen.push_back(i);
    }
    return chosen;
  }

  RandomStream Draws(RandomPurpose purpose, int64_t position) const {
    return text_.Draws(purpose, all_steps_, position);
  }

  Proposal Propose(int64_t position, const std::vector<double>& logits) const {
    const TokenDistribution drawn = text_.Drawn(position, logits);
    Proposal proposal;
    proposal.position = position;
    proposal.token = IsRest() ? text_.Plain(position, logits).Likeliest()
                              : drawn.Draw(Draws(RandomPurpose::kGeneration, position).Uniform());
    proposal.confidence = ConfidenceOf(proposal, drawn, logits);
    return proposal;
  }

  // Dream's is of the distribution that tokens are drawn from, others' of the model's.
  double ConfidenceOf(const Proposal& proposal, const TokenDistribution& drawn,
                      const std::vector<double>& logits) const {
    const TokenDistribution plain = text_.Plain(proposal.position, logits);
    const bool is_drawn = options_.method == WriteMethod::kDream;
    const TokenDistribution& of = is_drawn ? drawn : plain;
    std::vector<double> sorted;
    double entropy = 0;
    switch (options_.confidence) {
      case Confidence::kMargin:
        for (size_t i = 0; i < of.tokens().size(); ++i) sorted.push_back(of.probability(i));
        std::sort(sorted.rbegin(), sorted.rend());
        return sorted[0] - (sorted.size() > 1 ? sorted[1] : 0);
      case Confidence::kEntropy:
        for (size_t i = 0; i < of.tokens().size(); ++i) {
          const double p = of.probability(i);
          entropy += p > 0 ? p * std::log(p) : 0;
        }
        return entropy;
      case Confidence::kRandom:
      case Confidence::kProbability: break;
    }
    return of.Probability(proposal.token);
  }

  std::vector<size_t> ChooseByConfidence(const std::vector<int64_t>& blanks,
                                         const std::vector<std::vector<double>>& rows) {
    for (size_t i = 0; i < blanks.size(); ++i) {
      Proposal proposal = Propose(blanks[i], rows[i]);
      proposal.key = KeyOf(proposal);
      proposals_.push_back(proposal);
    }
    std::vector<size_t> order(blanks.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [this](size_t a, size_t b) { return proposals_[a].key > proposals_[b].key; });
    const auto left = static_cast<int64_t>(blanks.size());
    order.resize(static_cast<size_t>(std::clamp<int64_t>(NumChosen(order), 0, left)));
    std::sort(order.begin(), order.end());
    return order;
  }

  double KeyOf(const Proposal& proposal) const {
    RandomStream draws = Draws(RandomPurpose::kWritingOrder, proposal.position);
    double key = proposal.confidence;
    if (options_.confidence == Confidence::kRandom || options_.method == WriteMethod::kBlocks)
      key = draws.Uniform();
    if (options_.order_temperature > 0) {
      // The largest n of key / T + Gumbel noise are n draws without replacement.
      const double u = draws.Uniform();
      key = key / options_.order_temperature - std::log(-std::log(u > 0 ? u : 1e-300));
    }
    if (!options_.delay_end || proposal.token != form_.end_token) return key;
    // Released code assigns after sampling: at temperature 0 the confidence becomes 0, else it
    // stays.
    if (options_.literal) return options_.draw.cuts.temperature == 0 ? 0 : key;
    return -std::numeric_limits<double>::infinity();
  }

  int64_t NumChosen(const std::vector<size_t>& order) const {
    const auto left = static_cast<int64_t>(order.size());
    int64_t sure = 1;
    switch (options_.method) {
      case WriteMethod::kLlada:
        return part_blanks_ / steps_ + (step_ < part_blanks_ % steps_ ? 1 : 0);
      case WriteMethod::kDream:
        return WritesAll() ? left : static_cast<int64_t>(static_cast<double>(left) * Share());
      case WriteMethod::kThreshold:
        while (sure < left && proposals_[order[sure]].key >= options_.threshold) ++sure;
        return sure;
      case WriteMethod::kResample: return options_.group_len;
      default: return 1;
    }
  }

  const CanvasForm& form_;
  const WriteOptions& options_;
  LaneText text_;
  std::vector<std::pair<int64_t, int64_t>> parts_;
  size_t next_part_ = 0;
  int64_t begin_ = 0, end_ = 0;  // of the part
  int64_t part_blanks_ = 0;      // when it began
  int64_t steps_ = 1;
  int64_t step_ = 0;       // of the part
  int64_t all_steps_ = 0;  // of all parts
  bool has_logits_ = false;
  std::vector<Proposal> proposals_;
};

using Rows = std::vector<std::vector<double>>;  // of one text's blanks

// The passes of all texts.
class Unmasker {
 public:
  Unmasker(const WritingModel& model, const std::vector<Canvas>& canvases,
           const WriteOptions& options)
      : options_(options), rows_(canvases.size()), plain_(canvases.size()) {
    for (const Canvas& canvas : canvases) texts_.emplace_back(model, canvas, options);
  }

  absl::Status Open(const WritingModel& model, int64_t length) {
    const auto open = [&](std::unique_ptr<BlankReader>* reader) -> absl::Status {
      ANYORDER_ASSIGN_OR_RETURN(
          *reader, BlankReader::Create(model, static_cast<int64_t>(texts_.size()), length,
                                       options_.cache, options_.recompute));
      return absl::OkStatus();
    };
    ANYORDER_RETURN_IF_ERROR(open(&reader_));
    return options_.guidance > 0 ? open(&unconditional_) : absl::OkStatus();
  }

  absl::Status Run(TokenListener listener) {
    while (!AreDone()) {
      ANYORDER_RETURN_IF_ERROR(ReadLogits());
      for (size_t n = 0; n < texts_.size(); ++n) {
        if (texts_[n].is_done()) continue;
        texts_[n].Step(
            rows_[n], options_.guidance > 0 ? plain_[n] : rows_[n],
            [&](const WrittenToken& token) { listener(static_cast<int64_t>(n), token); });
      }
    }
    return absl::OkStatus();
  }

  std::vector<WrittenText> Finish() {
    std::vector<WrittenText> written;
    for (UnmaskedText& text : texts_) written.push_back(text.text().Finish());
    return written;
  }

 private:
  bool AreDone() const {
    return std::all_of(texts_.begin(), texts_.end(),
                       [](const UnmaskedText& text) { return text.is_done(); });
  }

  absl::Status ReadLogits() {
    std::vector<BlankQuestion> questions;
    bool is_any = false;
    for (UnmaskedText& text : texts_) {
      questions.push_back(text.needs_logits() ? text.Question() : BlankQuestion());
      is_any |= text.needs_logits();
    }
    if (!is_any) return absl::OkStatus();
    ANYORDER_RETURN_IF_ERROR(ReadRows(*reader_, questions, /*is_conditional=*/true, &rows_));
    if (options_.guidance == 0) return absl::OkStatus();
    std::vector<Rows> unconditional(texts_.size());
    ANYORDER_RETURN_IF_ERROR(
        ReadRows(*unconditional_, questions, /*is_conditional=*/false, &unconditional));
    for (size_t n = 0; n < texts_.size(); ++n) {
      if (questions[n].positions.empty()) continue;
      plain_[n] = rows_[n];
      for (size_t i = 0; i < rows_[n].size(); ++i) {
        for (size_t v = 0; v < rows_[n][i].size(); ++v) {
          const double u = unconditional[n][i][v];
          rows_[n][i][v] = u + (1 + options_.guidance) * (plain_[n][i][v] - u);
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadRows(BlankReader& reader, const std::vector<BlankQuestion>& questions,
                        bool is_conditional, std::vector<Rows>* rows) {
    std::vector<std::vector<int32_t>> tokens;
    for (UnmaskedText& text : texts_)
      tokens.push_back(is_conditional ? text.text().tokens() : text.Unconditional());
    ANYORDER_RETURN_IF_ERROR(reader.Read(tokens, questions));
    for (size_t n = 0; n < texts_.size(); ++n) {
      const size_t count = questions[n].positions.size();
      if (count == 0) continue;
      texts_[n].text().CountPass();
      (*rows)[n].resize(count);
      for (size_t i = 0; i < count; ++i)
        reader.Row(static_cast<int64_t>(n), static_cast<int64_t>(i), &(*rows)[n][i]);
    }
    return absl::OkStatus();
  }

  const WriteOptions& options_;
  std::vector<UnmaskedText> texts_;
  std::unique_ptr<BlankReader> reader_;
  std::unique_ptr<BlankReader> unconditional_;
  std::vector<Rows> rows_;   // what tokens are drawn from
  std::vector<Rows> plain_;  // without guidance
};

}  // namespace

absl::StatusOr<std::vector<WrittenText>> UnmaskBlanks(const WritingModel& model,
                                                      const std::vector<Canvas>& canvases,
                                                      const WriteOptions& options,
                                                      TokenListener listener) {
  int64_t length = 0;
  for (const Canvas& canvas : canvases)
    length = std::max(length, static_cast<int64_t>(canvas.tokens.size()));
  Unmasker unmasker(model, canvases, options);
  ANYORDER_RETURN_IF_ERROR(unmasker.Open(model, length));
  ANYORDER_RETURN_IF_ERROR(unmasker.Run(listener));
  return unmasker.Finish();
}

}  // namespace anyorder
