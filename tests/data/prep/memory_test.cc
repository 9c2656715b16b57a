// What preparation holds for each document, counted: bytes of all blocks that are allocated at a
// time. This program's operator new and delete count them.

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"

#include "data/prep/assembler.h"
#include "data/prep/tokenizer.h"
#include "data/prep/work_unit.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/data/prep/corpus_text.h"

namespace {

std::atomic<int64_t> allocated{0}, most_allocated{0};

void* Allocate(size_t bytes) {
  void* const block = std::malloc(bytes);
  if (block == nullptr) std::abort();
  const int64_t now = allocated += static_cast<int64_t>(::malloc_usable_size(block));
  if (now > most_allocated) most_allocated = now;
  return block;
}
void Free(void* block) {
  if (block != nullptr) allocated -= static_cast<int64_t>(::malloc_usable_size(block));
  std::free(block);
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes); }
void* operator new[](size_t bytes) { return Allocate(bytes); }
void operator delete(void* block) noexcept { Free(block); }
void operator delete[](void* block) noexcept { Free(block); }
void operator delete(void* block, size_t) noexcept { Free(block); }
void operator delete[](void* block, size_t) noexcept { Free(block); }

namespace anyorder::data {
namespace {

// The most that is allocated at a time while `work` runs, above what was before.
template <typename Work>
int64_t MostAllocated(Work work) {
  const int64_t before = allocated;
  most_allocated = before;
  work();
  return most_allocated - before;
}

TEST(PrepMemoryTest, ADigestTakesAtMostFortyBytesWhereverTheTablesGrow) {
  // Around the sizes at which tables of powers of two are full to seven eighths.
  for (const uint64_t count : {57'344, 60'000, 70'000, 90'000, 114'689, 120'000, 235'000}) {
    const int64_t most = MostAllocated([count] {
      DigestSet digests;
      for (uint64_t i = 0; i < count; ++i)
        digests.Insert(DigestOf({reinterpret_cast<const char*>(&i), sizeof i}));
    });
    EXPECT_LE(most, 40 * static_cast<int64_t>(count)) << count;
  }
}

class UnitMemoryTest : public PrepFolderTest {
 protected:
  static constexpr int kLines = 40;  // of a document
  struct Cost {
    int64_t encoding, assembling, table;
  };
  // What so many documents of kLines words, or one line of `words`, cost.
  Cost CostOf(int documents, int lines, int words) {
    std::string text;
    for (int i = 0; i < documents; ++i) {
      for (int line = 0; line < lines; ++line) {
        absl::StrAppend(&text, "an", i);
        for (int word = 1; word < words; ++word) text += " be";
        text += '\n';
      }
      text += '\n';
    }
    const InputFile file{.path = Store("a.txt", text), .stored_bytes = text.size()};
    UnitRange range;
    range.end = text.size();
    range.digest = DigestOf(text).Hex();
    UnitOptions options;
    options.filter.enabled = false;
    const Tokenizer tokenizer = Tokenizer::Load(TestModel(), "test").value();
    const std::string path = folder_ + "/unit";
    Cost cost{};
    cost.encoding = MostAllocated([&] {
      UnitWriter writer(AtomicFile::Create(FileSystem::Posix(), path).value(), 2);
      const UnitCounts counts =
          EncodeUnit(file, range, options, {&tokenizer, nullptr, 300}, writer, nullptr).value();
      EXPECT_TRUE(writer.EndUnit({1, 2}, counts).ok());
      EXPECT_TRUE(writer.Commit().ok());
    });
    cost.assembling = MostAllocated([&] {
      UnitFiles units;
      EXPECT_TRUE(units.Add({path}).ok());
      const auto decisions = DecideDocuments({{1, 2}}, units, options).value();
      EXPECT_EQ(decisions.num_documents, static_cast<uint64_t>(documents));
    });
    cost.table = static_cast<int64_t>(std::filesystem::file_size(path));
    UnitFiles units;
    EXPECT_TRUE(units.Add({path}).ok());
    EXPECT_TRUE(units
                    .Read({1, 2}, /*verify=*/true,
                          [&](const DocumentPart& part) {
                            cost.table -= static_cast<int64_t>(part.sentences.size());
                            return absl::OkStatus();
                          })
                    .ok());
    return cost;
  }
};

TEST_F(UnitMemoryTest, ADocumentTakesNoMoreThanTheReadmeSays) {
  constexpr int kFew = 3000, kMany = 9000;
  const Cost few = CostOf(kFew, kLines, 1), many = CostOf(kMany, kLines, 1);
  EXPECT_LE(many.encoding - few.encoding, (kMany - kFew) * int64_t{120});
  EXPECT_LE(many.assembling - few.assembling, (kMany - kFew) * int64_t{41});
}

TEST_F(UnitMemoryTest, ADocumentIsStoredInNineteenBytesMoreThanItsSentences) {
  constexpr int kFew = 3000, kMany = 9000;
  const Cost few = CostOf(kFew, 1, 10), many = CostOf(kMany, 1, 10);
  EXPECT_EQ(many.table - few.table, (kMany - kFew) * int64_t{19});
}

}  // namespace
}  // namespace anyorder::data
