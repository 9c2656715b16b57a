// UnmaskBlanks (methods.h): all blanks of a part predicted at once, some of them written.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "core/base/status.h"
#include "core/generate/any_order/blank_reader.h"
#include "core/generate/any_order/lane_text.h"
#include "core/generate/any_order/methods.h"
#include "core/generate/any_order/open_network.h"

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
  // The text as a network without condition sees it: nothing that was given.
  std::vector<int32_t> Unconditional() const {
    std::vector<int32_t> tokens = text_.tokens();
    for (const int64_t position : text_.given()) tokens[position] = kBlank;
    return tokens;
  }

  // What the next step that writes anything asks of the network: the blanks that it writes, if they
  // are chosen whatever their logits are, else all of the part. Steps that write nothing need none,
  // so that MDLM's share of a pass is reused until a token changes.
  BlankQuestion Question() {
    proposals_.clear();
    while (!is_done()) {
      std::vector<int64_t> blanks = text_.BlanksIn(begin_, end_);
      if (IsByChance()) {
        std::erase_if(blanks, [this](int64_t position) { return !IsChosen(position); });
      } else if (NumChosen() == 0) {
        blanks.clear();
      } else if (HasRandomKeys()) {
        blanks = FirstByKey(blanks);
      }
      if (!blanks.empty()) return {begin_, end_, blanks};
      EndStep();
    }
    return {};
  }

  // What a blank of the question becomes. `plain`: its logits without guidance.
  void Propose(int64_t position, const std::vector<double>& logits,
               const std::vector<double>& plain) {
    const TokenDistribution drawn = text_.Drawn(position, logits);
    Proposal& proposal = proposals_.emplace_back();
    proposal.position = position;
    proposal.token = IsRest() ? text_.Plain(position, logits).Likeliest()
                              : drawn.Draw(Draws(RandomPurpose::kGeneration, position).Uniform());
    proposal.log_prob = LogProbability(plain, proposal.token);
    proposal.confidence = ConfidenceOf(proposal, drawn, logits);
    proposal.key = KeyOf(proposal);
  }

  // Writes what was asked about, or the surest of it.
  void Write(absl::FunctionRef<void(const WrittenToken&)> tell) {
    std::ranges::stable_sort(proposals_, std::greater(), &Proposal::key);
    if (!IsByChance()) proposals_.resize(static_cast<size_t>(NumChosen()));
    std::ranges::sort(proposals_, {}, &Proposal::position);
    for (const Proposal& one : proposals_)
      tell(text_.Write(one.position, one.token, one.log_prob, one.confidence));
    EndStep();
    if (options_.stop_at_end) text_.StopAtEnd(form_.end_token);
    if (text_.BlanksIn(begin_, end_).empty()) BeginPart();
  }

 private:
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
    if (form_.family == CanvasFamily::kBlocks) {
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

  bool IsChosen(int64_t position) const {
    return WritesAll() || Draws(RandomPurpose::kWritingOrder, position).Uniform() < Share();
  }

  RandomStream Draws(RandomPurpose purpose, int64_t position) const {
    return text_.Draws(purpose, all_steps_, position);
  }

  // Dream's is of the distribution that tokens are drawn from, others' of the model's.
  double ConfidenceOf(const Proposal& proposal, const TokenDistribution& drawn,
                      const std::vector<double>& logits) const {
    // At temperature 0 one token is left to draw from, which says nothing of how sure it is.
    const bool is_tempered = options_.draw.cuts.temperature > 0;
    const bool is_drawn = (options_.method == WriteMethod::kDream && is_tempered) ||
                          options_.draw.cuts == TokenCuts();
    const bool is_of_token = options_.confidence == Confidence::kProbability ||
                             options_.confidence == Confidence::kRandom;
    if (is_of_token && !is_drawn)
      return text_.Probability(proposal.position, logits, proposal.token);
    const TokenDistribution of = is_drawn ? drawn : text_.Plain(proposal.position, logits);
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

  // Whether the order of blanks does not depend on what the network says of them.
  bool HasRandomKeys() const {
    return !options_.delay_end && options_.method != WriteMethod::kThreshold &&
           (options_.confidence == Confidence::kRandom || options_.method == WriteMethod::kBlocks);
  }

  // The blanks that are written next, by keys that are random.
  std::vector<int64_t> FirstByKey(const std::vector<int64_t>& blanks) const {
    std::vector<std::pair<double, int64_t>> keys;  // negated: ties go to the first position
    for (const int64_t position : blanks)
      keys.push_back({-KeyOf({.position = position}), position});
    std::sort(keys.begin(), keys.end());
    std::vector<int64_t> chosen;
    for (int64_t i = 0; i < NumChosen(); ++i) chosen.push_back(keys[i].second);
    std::sort(chosen.begin(), chosen.end());
    return chosen;
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

  // How many blanks the step writes. kThreshold: at most so many before proposals are there, which
  // are sorted by key then.
  int64_t NumChosen() const {
    const auto left = static_cast<int64_t>(text_.BlanksIn(begin_, end_).size());
    int64_t sure = 1;
    switch (options_.method) {
      case WriteMethod::kLlada:
        return std::min(left, part_blanks_ / steps_ + (step_ < part_blanks_ % steps_ ? 1 : 0));
      case WriteMethod::kDream:
        return WritesAll() ? left : static_cast<int64_t>(static_cast<double>(left) * Share());
      case WriteMethod::kThreshold:
        if (proposals_.empty()) return left;
        while (sure < left && proposals_[sure].key >= options_.threshold) ++sure;
        return sure;
      case WriteMethod::kResample: return std::min(left, options_.group_len);
      default: return 1;
    }
  }

  void EndStep() {
    ++step_;
    ++all_steps_;
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
  std::vector<Proposal> proposals_;
};

// A pass of all texts. `is_conditional`: it sees what was given.
absl::Status ReadBlanks(BlankReader& reader, std::vector<UnmaskedText>& texts,
                        const std::vector<BlankQuestion>& questions, bool is_conditional) {
  std::vector<std::vector<int32_t>> tokens;
  for (size_t n = 0; n < texts.size(); ++n) {
    tokens.push_back(is_conditional ? texts[n].text().tokens() : texts[n].Unconditional());
    if (!questions[n].positions.empty()) texts[n].text().CountPass();
  }
  return reader.Read(tokens, questions);
}

// What becomes of the blanks that text `n` asked about. One row of logits at a time: all of a
// text's would be gigabytes where vocabularies are large. `unconditional`: null without guidance.
absl::Status ProposeTokens(int64_t n, const BlankQuestion& asked, BlankReader& reader,
                           BlankReader* unconditional, double guidance, UnmaskedText& text) {
  std::vector<double> plain;
  std::vector<double> guided;
  for (size_t i = 0; i < asked.positions.size(); ++i) {
    RETURN_IF_ERROR(reader.Row(n, static_cast<int64_t>(i), &plain));
    if (unconditional != nullptr) {
      RETURN_IF_ERROR(unconditional->Row(n, static_cast<int64_t>(i), &guided));
      for (size_t v = 0; v < plain.size(); ++v)
        guided[v] += (1 + guidance) * (plain[v] - guided[v]);
    }
    text.Propose(asked.positions[i], unconditional == nullptr ? plain : guided, plain);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<WrittenText>> UnmaskBlanks(const WritingTask& task) {
  const WriteOptions& options = task.options;
  std::vector<UnmaskedText> texts;
  for (const Canvas& canvas : task.canvases) texts.emplace_back(task.model, canvas, options);
  const auto open = [&] {
    return BlankReader::Create(task.model, static_cast<int64_t>(texts.size()),
                               LongestOf(task.canvases), options.cache, options.recompute);
  };
  ASSIGN_OR_RETURN(const std::unique_ptr<BlankReader> reader, open());
  std::unique_ptr<BlankReader> unconditional;
  if (options.guidance > 0) {
    ASSIGN_OR_RETURN(unconditional, open());
  }
  while (true) {
    std::vector<BlankQuestion> questions;
    for (UnmaskedText& text : texts) questions.push_back(text.Question());
    if (std::ranges::all_of(texts, &UnmaskedText::is_done)) break;
    RETURN_IF_ERROR(ReadBlanks(*reader, texts, questions, /*is_conditional=*/true));
    if (unconditional != nullptr)
      RETURN_IF_ERROR(ReadBlanks(*unconditional, texts, questions, /*is_conditional=*/false));
    for (size_t n = 0; n < texts.size(); ++n) {
      if (questions[n].positions.empty()) continue;
      const auto text = static_cast<int64_t>(n);
      RETURN_IF_ERROR(ProposeTokens(text, questions[n], *reader, unconditional.get(),
                                    options.guidance, texts[n]));
      texts[n].Write([&](const WrittenToken& token) { task.listener(text, token); });
      if (!task.check(text, texts[n].is_done())) texts[n].text().Stop(task.model.form.end_token);
    }
  }
  std::vector<WrittenText> written;
  for (UnmaskedText& text : texts) written.push_back(text.text().Finish());
  return written;
}

}  // namespace anyorder
