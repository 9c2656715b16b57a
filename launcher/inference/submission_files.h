// Predictions in the form that benchmarks are sent, and the names that their files have there.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "data/trec/trec_files.h"
#include "launcher/inference/gold.h"
#include "launcher/inference/predictions.h"

namespace anyorder::launcher {

struct SubmissionFile {
  std::string name;
  std::string text;
};

// Six columns: topic, Q0, document, rank from 1, score, tag; topics in the order of their first
// entries, documents by metrics::RankingOrder.
std::string TrecRun(const std::vector<data::TrecRunEntry>& entries, const std::string& tag);

// What `task` is sent as. `input` is what was predicted; of mnli its name tells matched from
// mismatched, and of CoNLL's tasks its rows are copied. Errors: InvalidArgument for a task without
// a form, or such a name; FailedPrecondition for predictions of another kind, of other words than
// `input` has, or without identifiers where the form has them; those of ReadWholeFile.
absl::StatusOr<std::vector<SubmissionFile>> SubmissionFiles(
    const std::string& task, const std::string& input, const std::vector<Prediction>& predictions);

// The errors that SubmissionFiles and WriteSubmission would end with whatever is predicted, to be
// known before that.
absl::Status CheckSubmission(const std::string& task, const std::string& input,
                             const std::string& directory);

// For a ranking task (gold.h): the rows of `gold` as predictions of its row task's classes; of each
// question the candidate with the highest probability is right, the first of equal ones. The
// predictions are of rows, then a question with one candidate has the class of its prediction; or
// of choices, with the identifiers of rows as theirs, separated by commas, where a row in several
// has the mean of its probabilities; then a single candidate is right, and so is the first where
// labels leave nothing to compare (prep leaves such questions out). Errors: DataLoss for rows
// without prediction.
absl::StatusOr<std::vector<Prediction>> RankCandidates(const Gold& gold,
                                                       const std::vector<Prediction>& predictions);

// Makes the files in `directory`, which --write-submission named and is made if it is not there.
// AlreadyExists, before any is made; I/O.
absl::Status WriteSubmission(const std::vector<SubmissionFile>& files,
                             const std::string& directory);

}  // namespace anyorder::launcher
