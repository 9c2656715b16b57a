// A directory with a valid dataset of 200 tokens in two shards, for targets that spoil one of its
// files.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/digest.h"
#include "data/dataset/dataset.h"
#include "data/dataset/dataset_index.h"
#include "data/dataset/shard_format.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/fuzz/scratch_directory.h"

namespace anyorder::fuzz {

class SmallDataset {
 public:
  SmallDataset() {
    data::TestDataset dataset;
    dataset.shard_tokens = 128;
    dataset.Write(scratch_.path(), data::TestStream::Random(200, dataset.vocab_size, 1));
    auto index = data::ReadDatasetIndex(scratch_.path());
    ANYORDER_CHECK_OK(index.status());
    index_ = std::move(index).value();
  }
  const ScratchDirectory& scratch() const { return scratch_; }
  std::string FileOf(const std::string& name) const {
    return data::ReadFile(scratch_.path() + "/" + name);
  }

  // Uses the dataset with `bytes` in place of its first shard or its lanes: as damage leaves it,
  // and then as a stranger can make it, with a dataset.json whose length and digests fit.
  void UseWith(const std::string& name, const std::string& bytes) const {
    data::DatasetIndex index = index_;
    data::DatasetFile& file = name == index.lanes.file ? index.lanes : index.shards[0];
    std::string damaged = bytes;
    damaged.resize(file.bytes);  // another length is refused at once
    scratch_.Store(data::kIndexFile, data::SerializeDatasetIndex(index));
    scratch_.Store(name, damaged);
    Use();
    file.bytes = bytes.size();
    file.digest = DigestOf(bytes).Hex();
    file.metadata_digest = DigestOutside(bytes, ArraysOf(index, file)).Hex();
    scratch_.Store(data::kIndexFile, data::SerializeDatasetIndex(index));
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
    if ((*dataset)->ReadTokens(0, count, tokens.data()).ok()) {
      for (const int32_t id : tokens)
        ANYORDER_CHECK(id >= 0 && id < (*dataset)->vocab_size()) << id;
    }
    (*dataset)->ReadSentenceFlags(0, count, bits.data()).IgnoreError();
    (*dataset)->ReadWordStarts(0, count, bits.data()).IgnoreError();
    (*dataset)->ReadDocumentStarts(0, count, bits.data()).IgnoreError();
    for (const bool backward : {false, true}) {
      const auto range = (*dataset)->ReadLaneRange(0, 1, backward);
      if (!range.ok()) continue;
      ANYORDER_CHECK(0 <= range->begin && range->begin <= range->end && range->end <= count);
    }
    (*dataset)->Verify().IgnoreError();
  }

 private:
  // What `file` holds besides metadata (FORMAT.md).
  static std::vector<ByteRange> ArraysOf(const data::DatasetIndex& index,
                                         const data::DatasetFile& file) {
    std::vector<ByteRange> arrays;
    for (const auto& [name, offset] : file.arrays) {
      if (name.find(data::kChecksumsGroup) == 0) continue;
      const uint64_t bytes = name.find("lanes/") == 0 ? 16 * index.num_lane_cells
                             : name == data::kTokens  ? index.token_bytes * file.num_tokens
                                                      : data::BitmapBytes(file.num_tokens);
      arrays.push_back({.offset = offset, .bytes = bytes});
    }
    return arrays;
  }

  ScratchDirectory scratch_;
  data::DatasetIndex index_;
};

}  // namespace anyorder::fuzz
