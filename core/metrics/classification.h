// Scores of predicted classes, as scikit-learn and GLUE's evaluation define them. Classes are
// numbers from 0; gold[i] and predicted[i] are of example i.
//
// REQUIRES of all: equally many of both, one at least.

#pragma once

#include <cstdint>

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

}  // namespace anyorder::metrics
