// Scores of predicted labels, as scikit-learn, scipy and GLUE's evaluation define them. Classes are
// numbers from 0; gold[i] and predicted[i] are of example i.
//
// REQUIRES of all: equally many of both; of classes one at least.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace anyorder::metrics {

// The share that is right; accuracy_score.
double Accuracy(absl::Span<const int32_t> gold, absl::Span<const int32_t> predicted);

// F1 of the class `positive`, 2 TP / (2 TP + FP + FN); 0 where nothing is or was predicted to be of
// it. f1_score with average="binary".
double BinaryF1(absl::Span<const int32_t> gold, absl::Span<const int32_t> predicted,
                int32_t positive);

// The mean of BinaryF1 over the classes that occur in `gold` or `predicted`; f1_score with
// average="macro".
double MacroF1(absl::Span<const int32_t> gold, absl::Span<const int32_t> predicted);

// The correlation of two partitions into K classes (Gorodkin 2004, equation 8), for two classes
// Matthews' coefficient; 0 where either has one class only. matthews_corrcoef.
double MatthewsCorrelation(absl::Span<const int32_t> gold, absl::Span<const int32_t> predicted);

// Correlations of predicted numbers with given ones, as STS-B is scored with them. They are summed
// in long double, so that on x86 the result is the exact value within a few roundings of double,
// where scipy's own rounding grows with the number of values.

// scipy.stats.pearsonr. NaN for less than two values, constant ones, and those that are not finite.
double PearsonCorrelation(absl::Span<const double> x, absl::Span<const double> y);

// Pearson's correlation of the ranks; scipy.stats.spearmanr. NaN as above.
double SpearmanCorrelation(absl::Span<const double> x, absl::Span<const double> y);

// Ranks from 1; equal values have the average of theirs. scipy.stats.rankdata.
std::vector<double> AverageRanks(absl::Span<const double> values);

}  // namespace anyorder::metrics
