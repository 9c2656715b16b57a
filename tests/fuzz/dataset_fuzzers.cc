// The files of a dataset: as damage leaves one, and as a stranger can make it, with a dataset.json
// whose lengths and digests fit.

#include <nlohmann/json.hpp>

#include "core/base/digest.h"
#include "data/dataset/dataset.h"
#include "data/dataset/dataset_index.h"
#include "data/dataset/shard_format.h"
#include "data/dataset/shard_index.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/data/dataset/example_files.h"
#include "tests/fuzz/fuzz_target.h"

namespace anyorder::fuzz {
namespace {

constexpr uint64_t kTokens = 200;
constexpr char kShard[] = "shard-00000.h5";

// A directory with a valid dataset of two shards, one of whose files is spoilt.
class SmallDataset {
 public:
  SmallDataset() {
    data::TestDataset dataset;
    dataset.shard_tokens = 128;
    dataset.Write(scratch_.path(), data::TestStream::Random(kTokens, dataset.vocab_size, 1));
    index_ = ValueOrDie(data::ReadDatasetIndex(scratch_.path()));
    shard_index_ = scratch_.Load(data::kShardIndexFile);
  }
  std::vector<std::string> FileOf(const std::string& name) const { return {scratch_.Load(name)}; }

  // With `bytes` in place of its first shard or the index of its shards.
  void UseWith(const std::string& name, absl::string_view bytes) const {
    data::DatasetIndex index = index_;
    std::string damaged(bytes);
    damaged.resize(scratch_.Load(name).size());  // another length is refused at once
    const std::string sound = scratch_.Load(name);
    scratch_.Store(name, damaged);
    UseWithIndex(data::SerializeDatasetIndex(index));
    index.shards = name == kShard ? WithRecord(bytes) : Entry(name, bytes);
    scratch_.Store(name, bytes);
    UseWithIndex(data::SerializeDatasetIndex(index));
    scratch_.Store(name, sound);
    scratch_.Store(data::kShardIndexFile, shard_index_);
  }

  // Opens the dataset with this dataset.json and reads all of it, as far as that goes.
  void UseWithIndex(absl::string_view index) const {
    scratch_.Store(data::kIndexFile, index);
    const auto dataset = data::Dataset::Open(scratch_.path());
    if (!dataset.ok()) return;
    const int64_t count = (*dataset)->num_tokens();
    // How many tokens there are shows when they are read.
    const int64_t read = std::min<int64_t>(count, 1 << 20);
    std::vector<int32_t> tokens(read);
    std::vector<uint8_t> bits(read);
    if ((*dataset)->ReadTokens(0, read, tokens.data()).ok()) {
      for (const int32_t id : tokens)
        ANYORDER_CHECK(id >= 0 && id < (*dataset)->vocabulary().size) << id;
    }
    (*dataset)->ReadSentenceFlags(0, read, bits.data()).IgnoreError();
    (*dataset)->ReadWordStarts(0, read, bits.data()).IgnoreError();
    (*dataset)->ReadDocumentStarts(0, read, bits.data()).IgnoreError();
    (*dataset)->ReadTokens(count - read, count, tokens.data()).IgnoreError();
    (*dataset)->CheckShards(8).IgnoreError();
    (*dataset)->Verify().IgnoreError();
  }

  // With `table` as examples.bin. `form` says which task and how many classes and parts
  // dataset.json tells of.
  void UseWithExamples(uint8_t form, const std::string& table) const {
    data::DatasetIndex index = index_;
    const auto task = static_cast<ExampleTask>(form % 7);
    index.examples = (task == ExampleTask::kTokens ? tagged_ : examples_).Entry(table);
    index.examples->task = task;
    if (form & 8) index.examples->num_parts += form >> 4;
    const bool has_scores = (form & 16) != 0;
    if (has_scores || !data::HasClasses(index.examples->task)) index.examples->classes.clear();
    scratch_.Store(data::kExamplesFile, table);
    scratch_.Store(data::kIndexFile, data::SerializeDatasetIndex(index));
    const auto dataset = data::Dataset::Open(scratch_.path());
    if (!dataset.ok()) return;
    const data::StoredExamples& examples = *(*dataset)->examples();
    for (int64_t i = 0; i < examples.num_examples(); ++i) {
      const auto example = examples.ReadExample(i);
      ANYORDER_CHECK_OK(example.status());
      const bool is_span = examples.task() == ExampleTask::kSpans;
      ANYORDER_CHECK(example->label >= -1 &&
                     example->label < (is_span ? 2 : examples.num_classes()));
      ANYORDER_CHECK(example->answer_end <=
                     (is_span ? std::ssize(example->parts[1]) : int64_t{-1}));
      for (const std::vector<int32_t>& part : example->parts)
        ANYORDER_CHECK(!part.empty() && part.size() <= kTokens);
      const bool has_tags = examples.task() == ExampleTask::kTokens;
      ANYORDER_CHECK(example->tags.size() == (has_tags ? example->parts[0].size() : 0));
      for (const int32_t tag : example->tags)
        ANYORDER_CHECK(tag >= kNoTag && tag < examples.num_classes());
    }
  }

 private:
  static data::DatasetFile Entry(const std::string& name, absl::string_view bytes) {
    return {.file = name, .bytes = bytes.size(), .digest = DigestOf(bytes).Hex()};
  }
  // Stores a shards.idx that fits `shard` as the first shard. Returns its entry.
  data::DatasetFile WithRecord(absl::string_view shard) const {
    const auto shards =
        ValueOrDie(data::ShardIndex::Open(*FileSystem::Posix(), scratch_.path(), index_));
    std::vector<data::ShardRecord> records;
    for (uint64_t i = 0; i < shards.num_shards(); ++i) {
      data::ShardRecord record = ValueOrDie(shards.Read(i));
      if (i == 0) {
        std::vector<ByteRange> arrays;
        for (size_t a = 0; a < data::kNumShardArrays; ++a) {
          arrays.push_back(
              {.offset = record.arrays[a],
               .bytes = data::ShardArrayBytes(static_cast<data::ShardArray>(a),
                                              index_.TokensOfShard(0), index_.token_bytes)});
        }
        record.bytes = shard.size();
        record.digest = DigestOf(shard);
        record.metadata_digest = DigestOutside(shard, std::move(arrays));
      }
      records.push_back(record);
    }
    scratch_.Store(data::kShardIndexFile, data::SerializeShardIndex(records));
    return Entry(data::kShardIndexFile, data::SerializeShardIndex(records));
  }

  ScratchDirectory scratch_;
  const data::TestExamples examples_ = data::TestExamples::Pairs(kTokens);
  const data::TestExamples tagged_ = data::TestExamples::Tagged(kTokens);
  data::DatasetIndex index_;
  std::string shard_index_;
};

const SmallDataset& Sound() {
  static const SmallDataset dataset;
  return dataset;
}

// Beside sound shards; again with the digest of what is left of it.
void UseIndex(absl::string_view text) {
  Sound().UseWithIndex(text);
  nlohmann::json root = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return;
  root.erase("dataset_digest");
  root["dataset_digest"] = DigestOf(root.dump()).Hex();
  Sound().UseWithIndex(root.dump());
}

std::vector<std::string> ExampleSeeds() {
  std::vector<std::string> seeds;
  for (const uint8_t form : {1, 2, 3})
    seeds.push_back(static_cast<char>(form) + data::TestExamples::Pairs(kTokens).Table());
  seeds.push_back(static_cast<char>(ExampleTask::kTokens) +
                  data::TestExamples::Tagged(kTokens).Table());
  return seeds;
}

// The first byte is the form.
void UseExamples(absl::string_view text) {
  if (text.empty()) return;
  Sound().UseWithExamples(static_cast<uint8_t>(text[0]), std::string(text.substr(1)));
}

const bool registered[] = {
    Register({"dataset_index", [] { return SmallDataset().FileOf(data::kIndexFile); }, UseIndex}),
    Register({"shard", [] { return SmallDataset().FileOf(kShard); },
              [](absl::string_view text) { Sound().UseWith(kShard, text); }}),
    Register({"shard_index", [] { return SmallDataset().FileOf(data::kShardIndexFile); },
              [](absl::string_view text) { Sound().UseWith(data::kShardIndexFile, text); }}),
    Register({"examples", ExampleSeeds, UseExamples}),
};

}  // namespace
}  // namespace anyorder::fuzz
