#include "launcher/texts/blanks/blank_lengths.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "core/base/status.h"

namespace anyorder::launcher {
namespace {

using Lengths = std::vector<int64_t>;

constexpr int kMostSweeps = 2;

class LengthSearch {
 public:
  LengthSearch(const LengthBounds& bounds, TryLengths try_all)
      : bounds_(bounds), try_all_(try_all) {}

  absl::StatusOr<Lengths> Run() {
    Lengths start = bounds_.known;
    for (size_t b = 0; b < start.size(); ++b)
      if (start[b] == 0) start[b] = bounds_.least[b];
    RETURN_IF_ERROR(Try({start}));
    for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
      const Lengths before = best_;
      for (size_t b = 0; b < start.size(); ++b)
        if (bounds_.known[b] == 0) RETURN_IF_ERROR(Try(LengthsOf(b)));
      if (best_ == before) break;
    }
    return best_;
  }

 private:
  // All lengths of one blank, the others as in the best.
  std::vector<Lengths> LengthsOf(size_t blank) const {
    const int64_t others = std::accumulate(best_.begin(), best_.end(), int64_t{0}) - best_[blank];
    const int64_t most = std::min(bounds_.most, bounds_.room - others);
    std::vector<Lengths> all;
    for (int64_t length = bounds_.least[blank]; length <= most; ++length) {
      all.push_back(best_);
      all.back()[blank] = length;
    }
    return all;
  }

  absl::Status Try(const std::vector<Lengths>& wanted) {
    std::vector<Lengths> fresh;
    for (const Lengths& lengths : wanted)
      if (tried_.insert(lengths).second) fresh.push_back(lengths);
    if (fresh.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::vector<double> scores, try_all_(fresh));
    for (size_t i = 0; i < fresh.size(); ++i) {
      if (!best_.empty() && scores[i] <= best_score_) continue;
      best_ = fresh[i];
      best_score_ = scores[i];
    }
    return absl::OkStatus();
  }

  const LengthBounds& bounds_;
  const TryLengths try_all_;
  std::set<Lengths> tried_;
  Lengths best_;
  double best_score_ = 0;
};

}  // namespace

double LengthRule::Score(double log_prob, double fit, const Lengths& lengths,
                         const Lengths& known) const {
  double sum = log_prob;
  int64_t tokens = 0;
  for (size_t b = 0; b < lengths.size(); ++b) {
    tokens += lengths[b];
    if (mean_length == 0 || known[b] > 0) continue;
    sum +=
        static_cast<double>(lengths[b] - 1) * std::log1p(-1 / mean_length) - std::log(mean_length);
  }
  return sum / std::pow(static_cast<double>(tokens), length_penalty) + fit;
}

absl::StatusOr<Lengths> FindLengths(const LengthBounds& bounds, TryLengths try_all) {
  return LengthSearch(bounds, try_all).Run();
}

}  // namespace anyorder::launcher
