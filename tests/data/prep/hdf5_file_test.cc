// Images of HDF5 files, which HDF5 itself reads.

#include "data/prep/hdf5_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "tests/data/dataset/dataset_files.h"
#include "tests/data/dataset/hdf5_reader.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::data {
namespace {

struct Image {
  std::string bytes;
  std::map<std::string, uint64_t> offsets;
};

Image MakeImage() {
  auto writer = Hdf5ImageWriter::Create();
  const uint16_t tokens[5] = {1, 2, 3, 65535, 9};
  const uint8_t odd[3] = {7, 8, 9};
  const uint64_t table[4] = {0, 10, 10, 1ull << 40};
  EXPECT_TRUE(writer->AddDataset("odd", 1, {3}, odd).ok());
  EXPECT_TRUE(writer->AddDataset("tokens", 2, {5}, tokens).ok());
  EXPECT_TRUE(writer->AddDataset("deep/er/table", 8, {2, 2}, table).ok());
  EXPECT_TRUE(writer->AddAttribute("count", 5).ok());
  EXPECT_TRUE(writer->AddAttribute("digest", "0123abcd").ok());
  return {.bytes = writer->Finish().value(), .offsets = writer->offsets()};
}

TEST(Hdf5FileTest, BytesAtTheOffsetsAreTheValuesWrittenAndHdf5Agrees) {
  const Image image = MakeImage();
  const TemporaryDirectory folder;
  WriteFile(folder.path() + "/image", image.bytes);
  const Hdf5Reader reader(folder.path() + "/image");
  ASSERT_EQ(image.offsets.size(), 3u);
  for (const auto& [name, offset] : image.offsets) {
    EXPECT_EQ(offset, reader.Locate(name).offset) << name;
    EXPECT_EQ(offset % 64, 0u) << name;
  }
  EXPECT_EQ(reader.Locate("tokens").bytes, 10u);
  EXPECT_EQ(reader.Locate("tokens").element_bytes, 2u);
  uint16_t value = 0;
  std::memcpy(&value, image.bytes.data() + image.offsets.at("tokens") + 6, 2);
  EXPECT_EQ(value, 65535);
  EXPECT_EQ(reader.Locate("deep/er/table").shape, (std::vector<uint64_t>{2, 2}));
  uint64_t last = 0;
  std::memcpy(&last, image.bytes.data() + image.offsets.at("deep/er/table") + 24, 8);
  EXPECT_EQ(last, 1ull << 40);
  EXPECT_EQ(reader.IntegerAttribute("count"), 5u);
  EXPECT_EQ(reader.StringAttribute("digest"), "0123abcd");
}

TEST(Hdf5FileTest, SameCallsGiveSameBytesAtAnotherTime) {
  const std::string first = MakeImage().bytes;
  sleep(1);  // HDF5 stores whole seconds
  EXPECT_EQ(first, MakeImage().bytes);
}

}  // namespace
}  // namespace anyorder::data
