#include "ckpt/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/whole_file.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::ckpt {
namespace {

class SafetensorsTest : public ::testing::Test {
 protected:
  std::string path() const { return directory_.path() + "/model.safetensors"; }

  // Three tensors, the narrow one declared first.
  void WriteModel() {
    auto writer = SafetensorsWriter::Create(path(),
                                            {{"bytes", DType::kUint8, {3}},
                                             {"weight", DType::kFloat32, {2, 2}},
                                             {"empty", DType::kBFloat16, {0, 4}}},
                                            {{"format", "pt"}})
                      .value();
    EXPECT_FALSE(std::filesystem::exists(path()));
    ASSERT_TRUE(writer.Write("bytes", ConstTensorView(bytes_.data(), Shape({3}))).ok());
    ASSERT_TRUE(writer.WriteRange("weight", 2, 4, weight_.data() + 2).ok());
    ASSERT_TRUE(writer.WriteRange("weight", 0, 2, weight_.data()).ok());
    const absl::Status finished = writer.Finish();
    ASSERT_TRUE(finished.ok()) << finished;
  }

  static std::string File(const std::string& json, const std::string& data) {
    std::string text;
    for (int byte = 0; byte < 8; ++byte)
      text.push_back(static_cast<char>(json.size() >> (8 * byte)));
    return text + json + data;
  }

  TemporaryDirectory directory_;
  const std::vector<uint8_t> bytes_ = {1, 2, 255};
  const std::vector<float> weight_ = {0.5f, -1.0f, 2.0f, 3.25f};
};

TEST_F(SafetensorsTest, WhatIsWrittenIsReadBack) {
  WriteModel();
  const auto reader = SafetensorsReader::Open(path()).value();
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  ASSERT_EQ(reader.tensors().size(), 3u);
  const SafetensorsTensor* const weight = reader.Find("weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->entry.shape, Shape({2, 2}));
  EXPECT_EQ(weight->offset % kSafetensorsAlignment, 0);  // the widest comes first
  std::vector<float> read(3);
  ASSERT_TRUE(reader.Read("weight", 1, 4, read.data()).ok());
  EXPECT_EQ(read, (std::vector<float>{-1.0f, 2.0f, 3.25f}));
  EXPECT_TRUE(absl::IsOutOfRange(reader.Read("weight", 1, 5, read.data())));
}

TEST_F(SafetensorsTest, PythonReadsItWithNothingButItsStandardLibrary) {
  WriteModel();
  const std::string command =
      absl::StrCat("python3 ", std::getenv("ANYORDER_SOURCE"), "/tests/ckpt/read_safetensors.py ",
                   path(), " > ", directory_.path(), "/out");
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(ReadWholeFile(directory_.path() + "/out", kMaxTextBytes).value(),
            "bytes U8 [3] [1, 2, 255]\n"
            "empty BF16 [0, 4] []\n"
            "weight F32 [2, 2] [0.5, -1.0, 2.0, 3.25]\n");
}

TEST_F(SafetensorsTest, AnUnfinishedFileNeverAppears) {
  auto writer = SafetensorsWriter::Create(path(), {{"x", DType::kFloat32, {4}}}, {}).value();
  ASSERT_TRUE(writer.WriteRange("x", 0, 3, weight_.data()).ok());
  EXPECT_THAT(writer.Finish(), Says("got 3 of 4 elements"));
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(SafetensorsTest, AnExistingFileIsNotOverwritten) {
  WriteModel();
  EXPECT_TRUE(absl::IsAlreadyExists(
      SafetensorsWriter::Create(path(), {{"x", DType::kFloat32, {4}}}, {}).status()));
}

TEST_F(SafetensorsTest, WrongTensorsAreRefused) {
  const std::vector<SafetensorsEntry> twice = {{"x", DType::kFloat32, {4}},
                                               {"x", DType::kFloat32, {4}}};
  EXPECT_TRUE(absl::IsInvalidArgument(SafetensorsWriter::Create(path(), twice, {}).status()));
  auto writer = SafetensorsWriter::Create(path(), {{"x", DType::kFloat32, {4}}}, {}).value();
  EXPECT_TRUE(absl::IsNotFound(writer.WriteRange("y", 0, 1, weight_.data())));
  EXPECT_TRUE(
      absl::IsInvalidArgument(writer.Write("x", ConstTensorView(bytes_.data(), Shape({3})))));
  EXPECT_TRUE(absl::IsOutOfRange(writer.WriteRange("x", 0, 5, weight_.data())));
}

TEST_F(SafetensorsTest, HeadersThatLieAreRefused) {
  const std::string good = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const auto parse = [](const std::string& file) {
    return ParseSafetensorsHeader(file, static_cast<int64_t>(file.size()), "f").status();
  };
  ASSERT_TRUE(parse(File(good, "12345678")).ok());
  const std::pair<std::string, const char*> lies[] = {
      {File(good, "1234567"), "its header describes"},
      {File(good, "123456789"), "its header describes"},
      {File(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", "123456789012"),
       "gap or overlap"},
      {File(R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "12345678"), "do not fit"},
      {File(R"({"x":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "12345678"),
       "not a count"},
      {File(R"({"x":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", ""),
       "too large"},
      {File(R"({"x":{"dtype":"Q4","shape":[2],"data_offsets":[0,8]}})", "12345678"), "'Q4'"},
      {File(R"({"x":{"dtype":"F32","shape":[2]}})", "12345678"), "data_offsets"},
      {File(R"({"x":7})", ""), "dtype"},
      {File(R"([1])", ""), "not a JSON object"},
      {File("{", ""), ""},
      {File(good, "12345678").substr(0, 20), "beyond the file's end"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}"), "header length"},
      {"abc", "shorter than its length field"},
  };
  for (const auto& [file, message] : lies)
    EXPECT_THAT(parse(file), Fails(absl::IsDataLoss, message)) << file;
}

// With a search through all earlier members for each new one, this would take minutes.
TEST_F(SafetensorsTest, ManyTensorsAreReadInLinearTime) {
  std::string tensors = "{\"__metadata__\":{\"a\":\"b\"}";
  for (int i = 0; i < 200'000; ++i) {
    absl::StrAppend(&tensors, ",\"k", i,
                    "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}");
  }
  const std::string file = File(tensors + "}", "");
  const auto header = ParseSafetensorsHeader(file, static_cast<int64_t>(file.size()), "f").value();
  EXPECT_EQ(header.tensors.size(), 200'000u);
}

TEST_F(SafetensorsTest, ATruncatedFileIsAnError) {
  WriteModel();
  std::filesystem::resize_file(path(), std::filesystem::file_size(path()) - 1);
  EXPECT_TRUE(absl::IsDataLoss(SafetensorsReader::Open(path()).status()));
  std::filesystem::resize_file(path(), 5);
  EXPECT_TRUE(absl::IsDataLoss(SafetensorsReader::Open(path()).status()));
}

}  // namespace
}  // namespace anyorder::ckpt
