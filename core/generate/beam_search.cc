#include "core/generate/beam_search.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/fields.h"
#include "core/base/status.h"

namespace anyorder {
namespace {

struct Candidate {
  double log_prob = 0;
  int64_t parent = 0;  // index among the live texts
  int32_t token = 0;
};

bool IsBetter(const Candidate& a, const Candidate& b) {
  if (a.log_prob != b.log_prob) return a.log_prob > b.log_prob;
  if (a.parent != b.parent) return a.parent < b.parent;
  return a.token < b.token;
}

// The beam of one prompt. Live text i is in lane first_lane + i.
class Beam {
 public:
  Beam(const BeamOptions& options, int64_t first_lane)
      : options_(options), first_lane_(first_lane), live_(1) {}

  bool done() const { return done_; }
  const std::vector<Hypothesis>& finished() const { return finished_; }

  // Extends the live texts by one token and writes the lanes' next one and where it comes from.
  // NextTokens::Logits' error.
  absl::Status Advance(NextTokens& model, std::vector<int32_t>& newest,
                       std::vector<int32_t>& parents) {
    ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, BestCandidates(model));
    std::vector<Hypothesis> next;
    for (size_t rank = 0; rank < candidates.size(); ++rank) {
      const Candidate& candidate = candidates[rank];
      const bool ends = candidate.token == options_.rules.end_token;
      if (ends && static_cast<int64_t>(rank) >= options_.width) continue;
      if (!ends && static_cast<int64_t>(next.size()) == options_.width) continue;
      Hypothesis text = live_[candidate.parent];
      text.log_prob = candidate.log_prob;
      text.ended = ends;
      if (ends) {
        Finish(std::move(text));
        continue;
      }
      text.tokens.push_back(candidate.token);
      const int64_t lane = first_lane_ + static_cast<int64_t>(next.size());
      newest[lane] = candidate.token;
      parents[lane] = static_cast<int32_t>(first_lane_ + candidate.parent);
      next.push_back(std::move(text));
    }
    live_ = std::move(next);
    ++length_;
    done_ = IsDone();
    return absl::OkStatus();
  }

 private:
  // The 2 * width best, best first: enough for `width` that do not end, since a text ends in one
  // way.
  absl::StatusOr<std::vector<Candidate>> BestCandidates(NextTokens& model) const {
    const int64_t vocab_size = model.vocab_size();
    const auto most = static_cast<size_t>(2 * options_.width);
    std::vector<Candidate> heap;  // the worst in front
    for (int64_t i = 0; i < static_cast<int64_t>(live_.size()); ++i) {
      ASSIGN_OR_RETURN(const float* const lane, model.Logits(first_lane_ + i));
      const double before = live_[i].log_prob - LogSumExp(lane, vocab_size);
      const NextTokenRules rules(options_.rules, live_[i].tokens);
      for (int32_t token = 0; token < static_cast<int32_t>(vocab_size); ++token) {
        const Candidate candidate{before + static_cast<double>(lane[token]), i, token};
        if (heap.size() == most && !IsBetter(candidate, heap.front())) continue;
        if (!rules.Allows(token)) continue;
        heap.push_back(candidate);
        std::push_heap(heap.begin(), heap.end(), IsBetter);
        if (heap.size() <= most) continue;
        std::pop_heap(heap.begin(), heap.end(), IsBetter);
        heap.pop_back();
      }
    }
    std::sort_heap(heap.begin(), heap.end(), IsBetter);
    return heap;
  }

  void Finish(Hypothesis text) {
    text.score = text.log_prob / LengthPenalty(text.length(), options_.length_penalty);
    // Behind those of equal score, which were found earlier.
    const auto place =
        std::ranges::upper_bound(finished_, text.score, std::greater(), &Hypothesis::score);
    finished_.insert(place, std::move(text));
    if (static_cast<int64_t>(finished_.size()) > options_.width) finished_.pop_back();
  }

  bool IsDone() {
    if (length_ == options_.rules.max_tokens) {
      for (Hypothesis& text : live_) Finish(std::move(text));
      live_.clear();
    }
    if (live_.empty()) return true;
    if (static_cast<int64_t>(finished_.size()) < options_.width) return false;
    if (options_.stop == SearchStop::kFirst) return true;
    // Live texts are in order of their log-probability.
    const double reachable =
        live_.front().log_prob / LengthPenalty(options_.rules.max_tokens, options_.length_penalty);
    return reachable <= finished_.back().score;
  }

  const BeamOptions& options_;
  int64_t first_lane_;
  int64_t length_ = 0;
  bool done_ = false;
  std::vector<Hypothesis> live_;
  std::vector<Hypothesis> finished_;  // best first
};

}  // namespace

absl::Status BeamOptions::Validate() const {
  RETURN_IF_ERROR(rules.Validate());
  FaultList faults;
  faults.Require(width >= 1, absl::StrCat("a beam of ", width, " texts"));
  faults.Require(length_penalty >= 0 && length_penalty <= 100,
                 absl::StrCat("length penalty ", length_penalty, " must be in [0, 100]"));
  return faults.ToStatus();
}

absl::StatusOr<std::vector<std::vector<Hypothesis>>> BeamSearch(NextTokens& model,
                                                                const BeamOptions& options) {
  const int64_t lanes = model.lanes();
  ANYORDER_CHECK(lanes % options.width == 0) << lanes << " lanes, width " << options.width;
  std::vector<Beam> beams;
  for (int64_t lane = 0; lane < lanes; lane += options.width) beams.emplace_back(options, lane);
  std::vector<int32_t> newest(static_cast<size_t>(lanes), 0);
  std::vector<int32_t> own(static_cast<size_t>(lanes));
  std::iota(own.begin(), own.end(), 0);
  std::vector<int32_t> parents = own;
  while (!std::ranges::all_of(beams, &Beam::done)) {
    RETURN_IF_ERROR(model.Next(newest, parents));
    parents = own;  // lanes without a live text stay as they are
    for (Beam& beam : beams)
      if (!beam.done()) RETURN_IF_ERROR(beam.Advance(model, newest, parents));
  }
  std::vector<std::vector<Hypothesis>> results;
  for (const Beam& beam : beams) results.push_back(beam.finished());
  return results;
}

}  // namespace anyorder
