#include "data/hdf5_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "data/digest.h"

namespace anyorder::data {
namespace {

std::string MakeImage() {
  auto writer = Hdf5ImageWriter::Create();
  EXPECT_TRUE(writer.ok());
  const uint16_t tokens[5] = {1, 2, 3, 65535, 9};
  const uint8_t odd[3] = {7, 8, 9};
  const uint64_t table[4] = {0, 10, 10, 1ull << 40};
  EXPECT_TRUE(writer->AddDataset("odd", 1, {3}, odd).ok());
  EXPECT_TRUE(writer->AddDataset("tokens", 2, {5}, tokens).ok());
  EXPECT_TRUE(writer->AddDataset("deep/er/table", 8, {2, 2}, table).ok());
  EXPECT_TRUE(writer->AddAttribute("count", 5).ok());
  EXPECT_TRUE(writer->AddAttribute("digest", "0123abcd").ok());
  auto image = writer->Finish();
  EXPECT_TRUE(image.ok());
  return *image;
}

std::string Store(const std::string& name, const std::string& bytes) {
  const std::string path = testing::TempDir() + "/hdf5_" + std::to_string(getpid()) + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(Hdf5FileTest, MappedBytesAtTheLocatedOffsetAreTheValuesWritten) {
  const std::string image = MakeImage();
  auto reader = Hdf5Reader::Open(Store("roundtrip", image));
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto tokens = reader->Locate("tokens");
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(tokens->bytes, 10u);
  EXPECT_EQ(tokens->element_bytes, 2u);
  EXPECT_EQ(tokens->offset % 64, 0u);
  uint16_t value = 0;
  std::memcpy(&value, image.data() + tokens->offset + 6, 2);
  EXPECT_EQ(value, 65535);
  const auto table = reader->Locate("deep/er/table");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->shape, (std::vector<uint64_t>{2, 2}));
  EXPECT_EQ(table->offset % 64, 0u);
  uint64_t last = 0;
  std::memcpy(&last, image.data() + table->offset + 24, 8);
  EXPECT_EQ(last, 1ull << 40);
  EXPECT_EQ(*reader->ReadUint64Attribute("count"), 5u);
  EXPECT_EQ(*reader->ReadStringAttribute("digest"), "0123abcd");
}

TEST(Hdf5FileTest, SameCallsGiveSameBytesAtAnotherTime) {
  const std::string first = MakeImage();
  sleep(1);  // HDF5 stores whole seconds
  EXPECT_EQ(first, MakeImage());
}

TEST(Hdf5FileTest, EveryTruncationIsDataLossOrStillLocatesWithinTheFile) {
  const std::string image = MakeImage();
  for (size_t keep = 0; keep < image.size(); keep += 97) {
    auto reader = Hdf5Reader::Open(Store("cut", image.substr(0, keep)));
    if (!reader.ok()) {
      EXPECT_EQ(reader.status().code(), absl::StatusCode::kDataLoss);
      continue;
    }
    const auto table = reader->Locate("deep/er/table");
    if (table.ok()) {
      EXPECT_LE(table->offset + table->bytes, keep);
    }
  }
  const auto missing = Hdf5Reader::Open("/nonexistent/file.h5");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
}

TEST(Hdf5FileTest, MissingNamesAreNamedInTheError) {
  auto reader = Hdf5Reader::Open(Store("missing", MakeImage()));
  ASSERT_TRUE(reader.ok());
  EXPECT_NE(std::string(reader->Locate("absent").status().message()).find("'absent'"),
            std::string::npos);
  EXPECT_EQ(reader->ReadUint64Attribute("digest").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(reader->ReadStringAttribute("count").status().code(), absl::StatusCode::kDataLoss);
}

TEST(DigestTest, PublishedCheckValues) {
  EXPECT_EQ(Crc32c("123456789", 9), 0xE3069283u);
  EXPECT_EQ(DigestOf("").Hex(), "99aa06d3014798d86001c324468d497f");
  StreamingDigest digest;
  digest.Update("any");
  digest.Update("");
  digest.Update("order");
  EXPECT_EQ(digest.Value(), DigestOf("anyorder"));
}

}  // namespace
}  // namespace anyorder::data
