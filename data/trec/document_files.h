// The documents that a ranking is of.

#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "absl/status/status.h"

namespace anyorder::data {

// By identifier. Valid UTF-8 without NUL.
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
