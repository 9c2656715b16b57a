// examples.bin: as damage leaves it, and as a stranger can write it, with a dataset.json whose
// length and digest fit. The input's first byte says which task and how many classes and parts
// dataset.json tells of.

#include "core/base/check.h"
#include "data/dataset/dataset.h"
#include "tests/data/dataset/example_files.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch_directory.h"

namespace anyorder::fuzz {
namespace {

constexpr uint64_t kTokens = 200;

class ExampleDataset {
 public:
  ExampleDataset() : examples_(data::TestExamples::Pairs(kTokens)) {
    data::TestDataset dataset;
    dataset.shard_tokens = 128;
    dataset.Write(scratch_.path(), data::TestStream::Random(kTokens, dataset.vocab_size, 1));
    auto index = data::ReadDatasetIndex(scratch_.path());
    ANYORDER_CHECK_OK(index.status());
    index_ = *std::move(index);
  }

  void UseWith(uint8_t form, const std::string& table) const {
    data::DatasetIndex index = index_;
    index.examples = examples_.Entry(table);
    index.examples->task = static_cast<ExampleTask>(form % 5);
    if (form & 8) index.examples->num_parts += form >> 4;
    if (index.examples->task == ExampleTask::kMultipleChoice) index.examples->classes.clear();
    scratch_.Store(data::kExamplesFile, table);
    scratch_.Store(data::kIndexFile, data::SerializeDatasetIndex(index));
    const auto dataset = data::Dataset::Open(scratch_.path());
    if (!dataset.ok()) return;
    const data::StoredExamples& examples = *(*dataset)->examples();
    for (int64_t i = 0; i < examples.num_examples(); ++i) {
      const auto example = examples.ReadExample(i);
      ANYORDER_CHECK_OK(example.status());
      ANYORDER_CHECK(example->label >= -1 && example->label < examples.num_classes());
      for (const std::vector<int32_t>& part : example->parts)
        ANYORDER_CHECK(!part.empty() && part.size() <= kTokens);
    }
  }

 private:
  ScratchDirectory scratch_;
  data::TestExamples examples_;
  data::DatasetIndex index_;
};

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const uint8_t form : {1, 2, 3})
    seeds.push_back(static_cast<char>(form) + data::TestExamples::Pairs(kTokens).Table());
  return seeds;
}

void Run(absl::string_view text) {
  static const ExampleDataset dataset;
  if (!text.empty()) {
    dataset.UseWith(static_cast<uint8_t>(text[0]), std::string(text.substr(1)));
  }
}

const bool registered = Register({"examples", Seeds, Run});

}  // namespace
}  // namespace anyorder::fuzz
