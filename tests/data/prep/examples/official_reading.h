// Reads official files of a downstream task in a test, without tokens or a dataset.

#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "data/prep/examples/official_tasks.h"
#include "tests/data/prep/corpus_text.h"

namespace anyorder::data {

// An example as the reader gave it; `label` is its class, choice, score, answers or tags as text,
// "" if unknown.
struct ReadBack {
  std::string where;
  std::string id;
  std::vector<std::string> parts;
  std::string label;

  bool operator==(const ReadBack&) const = default;
};

struct OfficialResult {
  std::vector<ReadBack> examples;
  std::vector<LeftOutFile> left_out;
};

class OfficialTaskTest : public PrepFolderTest {
 protected:
  // Of `name` in the test's folder, "" for the folder; `where` is without the folder.
  OfficialResult Read(const std::string& task, const std::string& name) const;
  // Stores `bytes` as `name` and reads that.
  OfficialResult Read(const std::string& task, const std::string& name,
                      const std::string& bytes) const;
  // Reading `name` ends in an error of which the message holds `message`.
  void ExpectFault(const std::string& task, const std::string& name,
                   const std::string& message) const;
  // The same of a file that holds `bytes`.
  void ExpectFault(const std::string& task, const std::string& name, const std::string& bytes,
                   const std::string& message) const;

  void StoreInFolders(const std::string& name, const std::string& bytes) const;

 private:
  absl::Status TryToRead(const std::string& task, const std::string& name,
                         OfficialResult& result) const;
};

}  // namespace anyorder::data
