// Made-up text for preprocessing tests, and the ways to store it.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "data/prep/byte_source.h"
#include "data/prep/prep.h"
#include "data/prep/tokenizer.h"
#include "tests/data/prep/stored_forms.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::data {

// A document is its lines.
using TestDocument = std::vector<std::string>;

// Sentences of invented words with punctuation, numbers such as "2,000," and now and then an
// accent. The same seed gives the same text. No two documents are equal, and every one passes the
// default quality filter.
std::vector<TestDocument> MakeDocuments(int count, uint64_t seed);

// Their lines, as one document.
TestDocument AllLines(const std::vector<TestDocument>& documents);

std::string AsTxt(const std::vector<TestDocument>& documents);
std::string AsJsonl(const std::vector<TestDocument>& documents);
// A header, id and text, and a row of quoted cells a document.
std::string AsTable(const std::vector<TestDocument>& documents, char separator);

// Hands out `text`, which it borrows, in small portions, as a slow disk or a decompressor may.
class PortionSource final : public ByteSource {
 public:
  PortionSource(absl::string_view text, size_t portion) : rest_(text), portion_(portion) {}
  absl::StatusOr<size_t> Read(char* out, size_t capacity) override {
    const size_t count = rest_.copy(out, std::min(capacity, portion_));
    rest_.remove_prefix(count);
    return count;
  }
  Digest128 StoredDigest() const override { return {}; }

 private:
  absl::string_view rest_;
  const size_t portion_;
};

// What a finished program left.
struct ProgramResult {
  int exit_status = -1;  // -1: ended by a signal
  std::string out;
  std::string error;
  int64_t max_resident_bytes = 0;  // the largest of the program and its workers
};

struct ProgramLimits {
  uint64_t max_file_bytes = 0;  // of every file it writes; 0: no limit
  bool as_nobody = false;       // without root's right to read every file
};

// It ended with 0; the same result.
ProgramResult Done(ProgramResult result);

// Both lists, one after the other.
std::vector<std::string> Joined(std::vector<std::string> words,
                                const std::vector<std::string>& more);

// Runs build/bin/anyorder-prep. Exit status 127: the program could not be started (as_nobody, where
// nobody may not reach it).
ProgramResult RunPrepProgram(const std::vector<std::string>& arguments,
                             const ProgramLimits& limits = {});

// It ended with `status` and one line on standard error that holds `message`.
void ExpectRefusal(const ProgramResult& result, int status, const std::string& message);

// Starts it and returns its process id; output goes nowhere, errors to the file `error_path`.
int StartPrepProgram(const std::vector<std::string>& arguments,
                     const std::string& error_path = "/dev/null");

// The name and content of every file under `directory`, hidden ones included.
std::vector<std::pair<std::string, std::string>> ReadTree(const std::string& directory);

// A fresh folder, for input and for the program's output in it.
class PrepFolderTest : public testing::Test {
 protected:
  // Returns the path.
  std::string Store(const std::string& name, const std::string& bytes) const;
  // Starts the program and kills it when `name` is in the staging folder. False if it ended before.
  bool StartAndKill(const std::vector<std::string>& arguments, const std::string& name) const;

  const TemporaryDirectory directory_;
  const std::string folder_ = directory_.path();
  const std::string output_ = folder_ + "/out";
};

// Text prepared by RunPrep, which keeps every document.
class TextPrepTest : public PrepFolderTest {
 protected:
  TextPrepTest() {
    options_.quiet = true;
    options_.text.filter.enabled = false;
    options_.text.drop_duplicates = false;
  }

  std::string Output(const std::string& name) const { return folder_ + "/out-" + name; }
  // Stores `text` under `name` and prepares it into a directory named after it.
  absl::StatusOr<PrepSummary> Prepare(const std::string& name, const std::string& text);
  // Expects the same files whatever number of workers writes them; the summary of the last.
  PrepSummary ExpectSameForWorkers(const std::vector<int>& counts, const std::string& text);

  PrepOptions options_;
};

// Labelled examples through the program, in the vocabulary of TestModel.
class ExampleFolderTest : public PrepFolderTest {
 protected:
  ProgramResult Run(const std::string& input, const std::string& output,
                    const std::vector<std::string>& more = {}) const;
  // A file of these lines ends in `status` and one line that holds `message`, without an output.
  void ExpectRefused(const std::string& name, const std::string& lines, const std::string& message,
                     const std::vector<std::string>& more = {}, int status = 65) const;
  static std::vector<int32_t> Ids(const std::string& text);
};

// The model that training on the lines of `text` gives.
absl::StatusOr<std::string> TrainOn(const VocabTraining& training, const std::string& text);

// A small model with XLNet's vocabulary layout, trained once per process on MakeDocuments.
const std::string& TestModel();
// The same, as a file.
std::string TestModelPath();

}  // namespace anyorder::data
