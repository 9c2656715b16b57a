// Correlations of predicted numbers with given ones, as STS-B is scored with them. They are summed
// in long double, so that on x86 the result is the exact value within a few roundings of double,
// where scipy's own rounding grows with the number of values.
//
// REQUIRES of all: equally many of both.

#pragma once

#include <vector>

#include "absl/types/span.h"

namespace anyorder::metrics {

// scipy.stats.pearsonr. NaN for less than two values, constant ones, and those that are not finite.
double PearsonCorrelation(absl::Span<const double> x, absl::Span<const double> y);

// Pearson's correlation of the ranks; scipy.stats.spearmanr. NaN as above.
double SpearmanCorrelation(absl::Span<const double> x, absl::Span<const double> y);

// Ranks from 1; equal values have the average of theirs. scipy.stats.rankdata.
std::vector<double> AverageRanks(absl::Span<const double> values);

}  // namespace anyorder::metrics
