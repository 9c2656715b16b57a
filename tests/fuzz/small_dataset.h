// A directory with a valid dataset of 200 tokens in two shards, for targets that spoil one of its files.

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "tests/data/dataset_files.h"
#include "tests/fuzz/scratch_directory.h"

namespace anyorder::fuzz {

class SmallDataset {
 public:
  SmallDataset() {
    data::TestDataset dataset;
    dataset.shard_tokens = 128;
    dataset.Write(scratch_.path(), data::TestStream::Random(200, dataset.vocab_size, 1));
  }
  const ScratchDirectory& scratch() const { return scratch_; }
  std::string FileOf(const std::string& name) const {
    return data::ReadFile(scratch_.path() + "/" + name);
  }

  // Uses the dataset with `bytes` in place of file `name`, brought to its length: dataset.json knows it, and a file of another
  // length is refused before it is parsed.
  void UseWith(const std::string& name, std::string bytes) const {
    bytes.resize(std::filesystem::file_size(scratch_.path() + "/" + name));
    scratch_.Store(name, bytes);
    Use();
  }

  // Opens the dataset and reads all of it, as far as that goes.
  void Use() const {
    const auto dataset = data::Dataset::Open(scratch_.path());
    if (!dataset.ok()) return;
    const int64_t count = (*dataset)->num_tokens();
    // The files were opened, so there are as many tokens as they hold.
    ANYORDER_CHECK(count >= 0 && count <= 1 << 20);
    std::vector<int32_t> tokens(count);
    std::vector<uint8_t> bits(count);
    (*dataset)->ReadTokens(0, count, tokens.data()).IgnoreError();
    (*dataset)->ReadSentenceFlags(0, count, bits.data()).IgnoreError();
    (*dataset)->ReadWordStarts(0, count, bits.data()).IgnoreError();
    (*dataset)->ReadDocumentStarts(0, count, bits.data()).IgnoreError();
    for (const bool backward : {false, true})
      (*dataset)->ReadLaneRange(0, 1, backward).status().IgnoreError();
    (*dataset)->Verify().IgnoreError();
  }

 private:
  ScratchDirectory scratch_;
};

}  // namespace anyorder::fuzz
