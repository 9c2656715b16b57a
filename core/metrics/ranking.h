// Scores of a ranked list of documents against the judgments of its topic, as TREC's tools compute
// them. A grade is what assessors gave: 0 or less for what is not relevant, as for what nobody
// judged.
//
// Grades and ranks are those of one topic; the score of a run is the mean over its topics that have
// a relevant document.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace anyorder::metrics {

// Indices of the documents, best first: higher scores first, of equal ones the id that is greater
// byte by byte, as in gdeval and trec_eval. (trec_eval keeps scores as float, in which more of them
// are equal.)
std::vector<size_t> RankingOrder(absl::Span<const double> scores,
                                 absl::Span<const std::string> ids);

enum class NdcgGain {
  kExponential,  // 2^grade - 1: gdeval, the web tracks' own evaluation
  kLinear,       // grade: trec_eval's ndcg_cut
};

// Normalized discounted cumulative gain of the first `depth` ranks: gain / log2(rank + 1), over
// that of the best order of `judged`. `ranked`: grades in the order of the run; `judged`: grades of
// all judged documents. 0 without a relevant document.
double Ndcg(absl::Span<const int32_t> ranked, absl::Span<const int32_t> judged, size_t depth,
            NdcgGain gain);

// Expected reciprocal rank (Chapelle et al. 2009) of the first `depth` ranks, not normalized, with
// R = (2^grade - 1) / 2^max_grade; gdeval has max_grade 4. REQUIRES no grade above it.
double ExpectedReciprocalRank(absl::Span<const int32_t> ranked, size_t depth, int32_t max_grade);

// The mean of the precisions at each relevant document; trec_eval's map of one topic.
// `num_relevant`: of all judged ones, 0 gives 0.
double AveragePrecision(absl::Span<const int32_t> ranked, size_t num_relevant);

}  // namespace anyorder::metrics
