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

// "index<tab>prediction", a row for each: of classes the name, of regression the score with as many
// digits as tell it from others. The index is the identifier, or where there is none the number
// from 0. REQUIRES predictions of classes or scores.
std::string GlueTable(const std::vector<Prediction>& predictions);

// "id<tab>prediction", the choice as a letter, A for the first: the letters are those of RACE's own
// `answers`, the identifier is "high/high7.txt#2", question 2 (from 0) of the article. (RACE itself
// has published no form.) REQUIRES predictions of choices with identifiers.
std::string ChoiceTable(const std::vector<Prediction>& predictions);

// The three files of SQuAD's evaluation and of the code that BERT and XLNet were published with:
// predictions.json (answers by identifier, "" for none), nbest_predictions.json (lists of text and
// probability, the best first; of no answer one empty text) and, where there are null scores,
// null_odds.json. REQUIRES predictions of answers with identifiers.
std::vector<SubmissionFile> SquadFiles(const std::vector<Prediction>& predictions);

// Six columns: topic, Q0, document, rank from 1, score, tag; topics in the order of their first
// entries, documents by metrics::RankingOrder.
std::string TrecRun(const std::vector<data::TrecRunEntry>& entries, const std::string& tag);

// The rows of CoNLL's file `input` with the predicted tag as one more column, as conlleval reads
// them; without rows of -DOCSTART-. REQUIRES predictions of words. Errors: those of ReadWholeFile;
// FailedPrecondition where the file has another number of words than were predicted.
absl::StatusOr<std::string> ConllRows(const std::string& input,
                                      const std::vector<Prediction>& predictions);

// What `task` is sent as. `input` is what was predicted; of mnli its name tells matched from
// mismatched. Errors: InvalidArgument for a task without a form, or such a name;
// FailedPrecondition for predictions of another kind, or without identifiers where the form has
// them.
absl::StatusOr<std::vector<SubmissionFile>> SubmissionFiles(
    const std::string& task, const std::string& input, const std::vector<Prediction>& predictions);

// The errors that SubmissionFiles and WriteSubmission would end with whatever is predicted, to be
// known before that.
absl::Status CheckSubmission(const std::string& task, const std::string& input,
                             const std::string& directory, const std::string& option);

// For a ranking task (gold.h): the rows of `gold` as predictions of its row task's classes; of each
// question the candidate with the highest probability is right, the first of equal ones. The
// predictions are of rows, then a question with one candidate has the class of its prediction; or
// of choices, with the identifiers of rows as theirs, separated by commas, where a row in several
// has the mean of its probabilities; then a single candidate is right, and so is the first where
// labels leave nothing to compare (prep leaves such questions out). Errors: DataLoss for rows
// without prediction.
absl::StatusOr<std::vector<Prediction>> RankCandidates(const Gold& gold,
                                                       const std::vector<Prediction>& predictions);

// Makes the files in `directory`, which is made if it is not there. AlreadyExists, before any is
// made; I/O. `option` named the directory.
absl::Status WriteSubmission(const std::vector<SubmissionFile>& files, const std::string& directory,
                             const std::string& option);

}  // namespace anyorder::launcher
