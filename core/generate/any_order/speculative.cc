// WriteSpeculatively (methods.h): guesses that a second pass keeps or refuses.

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "core/base/status.h"
#include "core/generate/any_order/methods.h"
#include "core/generate/any_order/open_network.h"
#include "core/generate/any_order/ordered_text.h"
#include "core/objective/lane_frame.h"

namespace anyorder {
namespace {

// Draws that decide about a guess; those of guesses themselves have purpose kGeneration.
constexpr RandomPurpose kDecision = RandomPurpose::kWritingOrder;

// One text's round.
class SpeculativeText {
 public:
  SpeculativeText(const WritingModel& model, const Canvas& canvas, const WriteOptions& options)
      : options_(options),
        end_token_(model.form.end_token),
        text_(model.form, canvas, options),
        is_pairs_(model.form.family == CanvasFamily::kPairs) {}

  LaneText& text() { return text_.text(); }
  bool is_done() const { return text_.is_done(); }
  // Whether the second pass has something to say about this round.
  bool is_unsure() const { return !is_done() && num_guesses_ > 1; }

  LanePass Guess(const SlotNetwork& network, int64_t lane) {
    LanePass pass;
    if (is_done()) return pass;
    ++round_;
    if (options_.method == WriteMethod::kBurst) text_.Reorder(RandomOrder(0));
    first_ = text_.known();
    const int64_t left = text_.size() - first_;
    const int64_t most = options_.Draft() > 0 ? options_.Draft() : left;
    num_guesses_ = std::min(most, left);
    // The slot of the newest token names the next position, which a round may change.
    text_.AddKnown(network.kept(lane), text_.known() - (is_pairs_ ? 1 : 0), {}, &pass);
    text_.AskAhead(text_.known() + num_guesses_, /*newest_is_kept=*/false, &pass);
    return pass;
  }

  absl::Status TakeGuesses(SlotNetwork& network, int64_t lane) {
    if (is_done()) return absl::OkStatus();
    text_.text().CountPass();
    guesses_.clear();
    const bool has_residual = !options_.literal;
    ahead_.resize(static_cast<size_t>(has_residual ? num_guesses_ : 1));
    for (int64_t i = 0; i < num_guesses_; ++i) {
      std::vector<double>& logits = ahead_[has_residual ? i : 0];
      RETURN_IF_ERROR(network.ReadRow(lane, i, &logits));
      const TokenDistribution drawn = Drawn(i, logits);
      // As kSequential draws the first, so that with one guess a round the texts are the same.
      const int32_t token = text_.text().DrawToken(drawn, first_, PositionOf(i));
      Guessed& guess = guesses_.emplace_back();
      guess.ahead = drawn.Probability(token);
      // Any may come first in one of several orders.
      guess.told = i == 0 || options_.orders > 1 ? ToldOf(i, token, logits) : Told{token};
    }
    // What follows is not written.
    const bool ends = options_.stop_at_end && guesses_[0].told.token == end_token_ &&
                      text_.text().EndsAt(PositionOf(0));
    if (ends) num_guesses_ = 1;
    best_ = {Positions(), {guesses_[0].told}, std::nullopt};
    return absl::OkStatus();
  }

  // Asks for the guesses in turn. `order`: which of the orders that are tried; 0 is the one that
  // they were asked in.
  LanePass Check(const SlotNetwork& network, int64_t lane, int64_t order) {
    LanePass pass;
    if (!is_unsure()) return pass;
    if (order > 0) Permute(RandomOrder(order));
    const int64_t known = text_.known();
    std::vector<int32_t> tokens;
    for (const Guessed& guess : guesses_) tokens.push_back(guess.told.token);
    text_.AddKnown(network.kept(lane), known + num_guesses_, tokens, &pass);
    text_.AskInTurn(known + 1, known + num_guesses_, &pass);
    return pass;
  }

  // The logits of the check of an order, up to the first guess that is not kept: remembers the
  // order that keeps the most guesses.
  absl::Status TakeCheck(SlotNetwork& network, int64_t lane) {
    if (!is_unsure()) return absl::OkStatus();
    text_.text().CountPass();
    Trial trial{Positions(), {guesses_[0].told}, std::nullopt};
    for (int64_t i = 1; i < num_guesses_; ++i) {
      RETURN_IF_ERROR(network.ReadRow(lane, i - 1, &in_turn_));
      const TokenDistribution drawn = Drawn(i, in_turn_);
      if (IsKept(i, drawn)) {
        trial.kept.push_back(ToldOf(i, guesses_[i].told.token, in_turn_));
        continue;
      }
      if (!options_.literal) trial.other = ToldOf(i, Residual(i, drawn), in_turn_);
      break;
    }
    if (trial.kept.size() > best_.kept.size() || trial.other) best_ = std::move(trial);
    return absl::OkStatus();
  }

  // Writes the guesses that are kept and, unless as released, the token in place of the next one.
  void Write(absl::FunctionRef<void(const WrittenToken&)> tell) {
    if (is_done()) return;
    text_.Reorder(best_.positions);
    for (const Told& one : best_.kept) {
      if (is_done()) break;
      Tell(one, tell);
    }
    has_other_ = best_.other && !is_done();
    if (has_other_) Tell(*best_.other, tell);
  }
  // Tokens whose slots hold whatever the order of the blanks.
  int64_t NumSettled() const { return text_.known() - (is_pairs_ ? 1 : 0); }
  // Tokens whose slots, as they were checked, still hold.
  int64_t NumFinal() const { return text_.known() - (has_other_ || is_pairs_ ? 1 : 0); }

 private:
  // A token and what is told of it.
  struct Told {
    int32_t token = 0;
    double log_prob = 0;
    double confidence = 0;
  };
  struct Guessed {
    Told told;
    double ahead = 0;  // the probability with which it was drawn
  };
  // An order of the blanks, what it keeps of the guesses, and the token that takes the place of the
  // next one.
  struct Trial {
    std::vector<int64_t> positions;
    std::vector<Told> kept;
    std::optional<Told> other;
  };

  std::vector<int64_t> RandomOrder(int64_t order) const {
    std::vector<int64_t> positions = text_.text().blanks();
    Shuffle(text_.text().Draws(kDecision, round_, text_.size() + order), positions.begin(),
            positions.end());
    return positions;
  }

  // Of the blanks, in the order.
  std::vector<int64_t> Positions() const {
    std::vector<int64_t> positions;
    for (int64_t i = text_.known(); i < text_.size(); ++i) positions.push_back(text_.position(i));
    return positions;
  }

  // The guesses, which are of all blanks, in another order of their positions.
  void Permute(const std::vector<int64_t>& positions) {
    const std::vector<int64_t> before = Positions();
    const std::vector<Guessed> guesses = guesses_;
    for (size_t i = 0; i < positions.size(); ++i)
      guesses_[i] = guesses[std::find(before.begin(), before.end(), positions[i]) - before.begin()];
    text_.Reorder(positions);
  }

  // Of a guess, whether it has been written or not.
  int64_t PositionOf(int64_t index) const { return text_.position(first_ + index); }
  TokenDistribution Drawn(int64_t index, const std::vector<double>& logits) const {
    return text_.text().Drawn(PositionOf(index), logits);
  }
  RandomStream DecisionAt(int64_t index) const {
    return text_.text().Draws(kDecision, round_, PositionOf(index));
  }
  bool IsKept(int64_t index, const TokenDistribution& in_turn) const {
    const Guessed& guess = guesses_[index];
    return DecisionAt(index).Uniform() * guess.ahead < in_turn.Probability(guess.told.token);
  }
  int32_t Residual(int64_t index, const TokenDistribution& q) const {
    const TokenDistribution p = Drawn(index, ahead_[index]);
    std::vector<double> before(ahead_[index].size(), 0.0);
    for (size_t i = 0; i < p.tokens().size(); ++i) before[p.tokens()[i]] = p.probability(i);
    std::vector<double> sums;
    double sum = 0;
    for (size_t i = 0; i < q.tokens().size(); ++i) {
      sum += std::max(0.0, q.probability(i) - before[q.tokens()[i]]);
      sums.push_back(sum);
    }
    RandomStream draws = DecisionAt(index);
    draws.Uniform();  // the decision
    const double u = draws.Uniform();
    // Rounding alone can leave nothing.
    if (sum <= 0) return q.Draw(u);
    const auto found = std::upper_bound(sums.begin(), sums.end(), u * sum);
    return q.tokens()[std::min<size_t>(static_cast<size_t>(found - sums.begin()), sums.size() - 1)];
  }

  Told ToldOf(int64_t index, int32_t token, const std::vector<double>& logits) const {
    return {token, LogProbability(logits, token),
            text_.text().Plain(PositionOf(index), logits).Probability(token)};
  }
  void Tell(const Told& one, absl::FunctionRef<void(const WrittenToken&)> tell) {
    tell(text_.Write(one.token, one.log_prob, one.confidence));
    if (options_.stop_at_end) text_.text().StopAtEnd(end_token_);
  }

  const WriteOptions& options_;
  const int32_t end_token_;
  OrderedText text_;
  const bool is_pairs_;
  int64_t round_ = 0;
  int64_t first_ = 0;  // of the guesses, in the order
  int64_t num_guesses_ = 0;
  std::vector<Guessed> guesses_;
  // Logits that guesses were drawn from, each [V], which the token in place of one is drawn from;
  // without such tokens those of one guess.
  std::vector<std::vector<double>> ahead_;
  std::vector<double> in_turn_;  // of a guess in turn, [V]
  Trial best_;
  bool has_other_ = false;  // whether the newest token is not as guessed
};

}  // namespace

absl::StatusOr<std::vector<WrittenText>> WriteSpeculatively(const WritingTask& task) {
  std::vector<SpeculativeText> texts;
  for (const Canvas& canvas : task.canvases) texts.emplace_back(task.model, canvas, task.options);
  const int64_t length = LongestOf(task.canvases);
  // The text, and a copy of its newest token for each guess of a network of pairs.
  ASSIGN_OR_RETURN(const std::unique_ptr<SlotNetwork> network,
                   OpenNetwork(task.model, {.lanes = static_cast<int64_t>(texts.size()),
                                            .key_slots = 2 * length,
                                            .span = length,
                                            .cached = !task.options.recompute}));
  const auto run = [&](auto make, auto take) -> absl::Status {
    std::vector<LanePass> passes;
    for (size_t n = 0; n < texts.size(); ++n)
      passes.push_back(make(texts[n], static_cast<int64_t>(n)));
    RETURN_IF_ERROR(network->Run(passes));
    for (size_t n = 0; n < texts.size(); ++n)
      RETURN_IF_ERROR(take(texts[n], static_cast<int64_t>(n)));
    return absl::OkStatus();
  };
  while (!std::ranges::all_of(texts, &SpeculativeText::is_done)) {
    RETURN_IF_ERROR(
        run([&](SpeculativeText& text, int64_t lane) { return text.Guess(*network, lane); },
            [&](SpeculativeText& text, int64_t lane) { return text.TakeGuesses(*network, lane); }));
    for (int64_t order = 0; order < task.options.orders; ++order) {
      if (std::ranges::none_of(texts, &SpeculativeText::is_unsure)) break;
      RETURN_IF_ERROR(run(
          [&](SpeculativeText& text, int64_t lane) { return text.Check(*network, lane, order); },
          [&](SpeculativeText& text, int64_t lane) {
            RETURN_IF_ERROR(text.TakeCheck(*network, lane));
            // Another order's slots are others.
            if (task.options.orders > 1)
              network->Keep(lane, std::min(network->kept(lane), text.NumSettled()));
            return absl::OkStatus();
          }));
    }
    for (size_t n = 0; n < texts.size(); ++n) {
      if (texts[n].is_done()) continue;
      const auto lane = static_cast<int64_t>(n);
      texts[n].Write([&](const WrittenToken& token) { task.listener(lane, token); });
      network->Keep(lane, std::min(network->kept(lane), texts[n].NumFinal()));
      if (!task.check(lane, texts[n].is_done())) texts[n].text().Stop(task.model.form.end_token);
    }
  }
  std::vector<WrittenText> written;
  for (SpeculativeText& text : texts) written.push_back(text.text().Finish());
  return written;
}

}  // namespace anyorder
