// Writes small datasets straight from FORMAT.md, without the program that makes real ones.

#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "data/dataset/dataset.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::data {

// One value a token each; bits are 0 or 1.
struct TestStream {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> sentence_flags, document_starts, word_starts;

  // Random values below `vocab_size`.
  static TestStream Random(int64_t num_tokens, uint64_t vocab_size, uint64_t seed);
  TestStream Part(int64_t begin, int64_t end) const;
  bool operator==(const TestStream&) const = default;
};

// Tokens [begin, end) of a dataset. Errors: its own.
absl::StatusOr<TestStream> ReadPart(const Dataset& dataset, int64_t begin, int64_t end);
// All of the dataset in `directory`, which is verified first. Dies of an error.
TestStream ReadStream(const std::string& directory);

struct TestDataset {
  uint64_t vocab_size = 1000;
  uint64_t shard_tokens = 64;
  std::string tokenizer = "a tokenizer";
  std::string corpus_digest = "0123456789abcdef0123456789abcdef";

  // Writes `stream` to the existing directory. Aborts if it cannot.
  void Write(const std::string& directory, const TestStream& stream) const;
};

std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, const std::string& bytes);
// Changes one bit of a file's byte.
void FlipBit(const std::string& path, uint64_t offset);

// Tests of a dataset in a folder of its own.
class TextFolderTest : public ::testing::Test {
 protected:
  explicit TextFolderTest(TestStream stream, const TestDataset& dataset = {})
      : stream_(std::move(stream)) {
    dataset.Write(folder_, stream_);
  }

  const TemporaryDirectory directory_;
  const std::string folder_ = directory_.path();
  const TestStream stream_;
};

}  // namespace anyorder::data
