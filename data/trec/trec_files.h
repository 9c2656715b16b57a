// The text files of TREC's ranking tasks, such as the web tracks of 2009 to 2012 (ClueWeb09): what
// was asked, which documents assessors found relevant, what a system ranked, and the documents.
// Cells of judgments and runs stand between spaces or tabs; there and in topics blank lines are
// skipped and CRLF counts as LF. Identifiers are text, as the files have them.
//
// Errors: those of ReadWholeFile; DataLoss that names file, line and what is wrong, for a file
// without entries, too.

#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace anyorder::data {

struct TrecTopic {
  std::string id;     // "51"
  std::string query;  // one line, not empty
};

// Either the web track's XML: elements <topic number="51" ...> with a <query> each, of which
// nothing else is read; or lines `51:query`. The first year's ids "wt09-1" are "1", as its
// judgments have them. In the order of the file; no two have one id.
absl::StatusOr<std::vector<TrecTopic>> ReadTrecTopics(const std::string& path);

struct TrecJudgment {
  std::string topic;
  std::string subtopic;  // second column: 0, or of the diversity task a subtopic
  std::string document;
  int32_t relevance = 0;  // 0 or less: not relevant; -2: spam
};

// "qrels": topic, subtopic, document, relevance. No document is judged twice for one subtopic.
absl::StatusOr<std::vector<TrecJudgment>> ReadTrecJudgments(const std::string& path);

struct TrecRunEntry {
  std::string topic;
  std::string document;
  int64_t rank = 0;  // trec_eval ignores it and sorts by score
  double score = 0;  // finite
  std::string tag;   // the system's name
};

// A run: topic, Q0, document, rank, score, tag. No document comes twice for one topic. In the order
// of the file.
absl::StatusOr<std::vector<TrecRunEntry>> ReadTrecRun(const std::string& path);

// The documents that a ranking is of, by identifier. Valid UTF-8 without NUL.
using TrecDocuments = std::unordered_map<std::string, std::string>;

// Adds those documents of the file `path` that are `wanted`, and passes over the others: the file
// may be much larger than memory. Either each line is a JSON object with the strings `id` and
// `text`, or the file is TREC text, which `<` begins:
//
//   <DOC>
//   <DOCNO> FBIS3-1 </DOCNO>
//   <TEXT> ... </TEXT>
//   </DOC>
//
// of which all elements TEXT are joined, tags in them become spaces, the five entities of XML are
// decoded and nothing else is read. What is not UTF-8 there becomes U+FFFD, NUL a space; the tags'
// names are in capitals, and each record begins a line.
// Errors: DataLoss with file and line for what is no document, or one that was read before;
// ErrnoStatus.
absl::Status ReadTrecDocuments(const std::string& path,
                               const std::unordered_set<std::string>& wanted,
                               TrecDocuments* documents);

}  // namespace anyorder::data
