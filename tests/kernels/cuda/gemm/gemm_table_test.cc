// The file that pins algorithms, and which key a product has: what a GPU's user needs to be right
// and no GPU is needed for.

#include "kernels/cuda/gemm/gemm_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_replace.h"

#include "tests/testing/status_matchers.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::kernels::cuda {
namespace {

GemmTable Example() {
  GemmTable table = {.chip = "NVIDIA H200, sm_90", .library = 130002};
  GemmKey key{.m = 5440, .n = 32000, .k = 1024};
  table.algorithms[key].algorithm = {1, 2, 3, ~uint64_t{0}, 0, 0, 0, 0xabcdef};
  key.transpose_a = key.accumulates = true;
  key.in = DType::kBFloat16;
  key.align_b = 4;
  for (const GemmSum sum : {GemmSum::kNone, GemmSum::kA, GemmSum::kB}) {
    key.sum = sum;
    key.has_bias = sum == GemmSum::kNone;
    table.algorithms[key] = {{7}, sum == GemmSum::kB};
  }
  key = {.m = 6000, .n = 4, .k = 4, .batch = 64, .step_a = 917504, .step_c = 524288};
  table.algorithms[key].algorithm = {8};
  return table;
}

class GemmTableTest : public ::testing::Test {
 protected:
  const TemporaryDirectory directory_;
  const std::string folder_ = directory_.path();
};

TEST_F(GemmTableTest, ComesBackAsItWasWritten) {
  const std::string path = folder_ + "/table.txt";
  ASSERT_TRUE(WriteGemmTable(Example(), path).ok());
  const GemmTable read = ReadGemmTable(path).value();
  EXPECT_EQ(read.chip, Example().chip);
  EXPECT_EQ(read.library, Example().library);
  EXPECT_EQ(read.algorithms, Example().algorithms);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1) << "nothing else";
}

TEST_F(GemmTableTest, SaysThatItIsNotThereOrCannotBeWritten) {
  EXPECT_TRUE(absl::IsNotFound(ReadGemmTable(folder_ + "/none.txt").status()));
  EXPECT_TRUE(absl::IsNotFound(WriteGemmTable(Example(), folder_ + "/none/table.txt")));
}

TEST_F(GemmTableTest, RefusesWhatItDidNotWriteNamingTheLine) {
  const std::string good = Example().ToText();
  ASSERT_TRUE(ParseGemmTable(good).ok());
  const struct {
    const char* from;
    const char* to;
    const char* line;
  } faults[] = {{"table 3", "table 4", "line 1"},
                {" 64 917504 0 524288 ", " 64 917504 0 15 ", "line 8"},
                {" 64 917504 0 524288 ", " 1 917504 0 524288 ", "line 8"},
                {" 64 917504 0 524288 ", " 64 917504 -1 524288 ", "line 8"},
                {"add bsum-fused 16", "add bsum-fused 32", "line 6"},
                {"chip ", "ship ", "line 2"},
                {"library 1", "library x", "line 3"},
                {"5440 ", "0 ", "line 4"},
                {"5440 ", "", "line 4"},
                {" fp32 fp32", " fp64 fp32", "line 4"},
                {" plain ", " plane ", "line 4"},
                {" nosum ", " sum ", "line 4"},
                {" 16 16 16 ", " 16 16 12 ", "line 4"},
                {"ffffffffffffffff", "ffffffffffffffxf", "line 4"},
                // cuBLASLt has sums of the result's dtype only, and they are fp32.
                {" fp32 plain add bsum-fused", " bf16 plain add bsum-fused", "line 6"},
                {"end 5", "end 6", "line 9"},
                {"end 5\n", "", "line 9"}};
  for (const auto& fault : faults) {
    const std::string bad = absl::StrReplaceAll(good, {{fault.from, fault.to}});
    EXPECT_THAT(ParseGemmTable(bad).status(),
                Fails(absl::IsDataLoss, fault.line, "delete the file"))
        << fault.from << " -> " << fault.to;
  }
}

// Such a table is set aside, but not what is damaged.
TEST_F(GemmTableTest, TellsAnEarlierVersionsTable) {
  const std::string earlier =
      absl::StrReplaceAll(Example().ToText(), {{"table 3", "table 1"}, {" nosum", ""}});
  EXPECT_THAT(ParseGemmTable(earlier).status(),
              Fails(absl::IsFailedPrecondition, "of an earlier version"));
}

TEST_F(GemmTableTest, RefusesEveryCutAndARepeatedProduct) {
  const std::string good = Example().ToText();
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(ParseGemmTable(good.substr(0, length)).ok()) << length;
  const size_t line = good.find("5440");
  const std::string product = good.substr(line, good.find('\n', line) + 1 - line);
  EXPECT_FALSE(ParseGemmTable(absl::StrReplaceAll(good, {{product, product + product}})).ok());
}

TEST(GemmKeyTest, HasShapeTransposesAlignmentAndTheOperandThatIsSummed) {
  alignas(64) char memory[64];
  GemmArgs args;
  args.a = ConstTensorView(memory, DType::kBFloat16, {24, 3});  // [K, M]
  args.transpose_a = true;
  args.b = ConstTensorView(memory + 8, DType::kBFloat16, {24, 20});
  args.c = TensorView(memory, DType::kFloat32, {3, 20});
  args.beta = 1;
  GemmKey key{.m = 3, .n = 20, .k = 24, .transpose_a = true, .in = DType::kBFloat16};
  key.accumulates = true;
  key.align_a = 2;  // rows of three bf16 numbers are six bytes long
  key.align_b = 8;  // the address decides, and rows of 40 bytes
  EXPECT_EQ(GemmKeyOf(args), key);
  EXPECT_FALSE(MayFuseSum(key));
  args.a_sum = TensorView(memory, DType::kFloat32, {3});
  key.sum = GemmSum::kA;
  EXPECT_EQ(GemmKeyOf(args), key);
  EXPECT_TRUE(MayFuseSum(key));
  args.a_sum = {};
  args.b_sum = TensorView(memory, DType::kFloat32, {20});
  EXPECT_EQ(GemmKeyOf(args).sum, GemmSum::kB);
  args.c = TensorView(memory, DType::kBFloat16, {3, 20});
  EXPECT_FALSE(MayFuseSum(GemmKeyOf(args))) << "the library's sums would be bf16";
}

// What the library is told of addresses must hold in all products of a batch.
TEST(GemmKeyTest, HasTheBatch) {
  alignas(64) char memory[64];
  GemmArgs args = {.a = ConstTensorView(memory, DType::kBFloat16, {8, 8}),
                   .b = ConstTensorView(memory, DType::kBFloat16, {8, 8}),
                   .c = TensorView(memory, DType::kFloat32, {8, 8}),
                   .batch = {.count = 1, .a = 68, .b = 1, .c = 2}};
  GemmKey key = GemmKeyOf(args);
  EXPECT_EQ(key.batch, 1);
  EXPECT_EQ(key.step_a + key.step_b + key.step_c, 0) << "one product has no distances";
  EXPECT_EQ(key.align_a, 16);
  args.batch.count = 3;
  args.batch.c = 66;
  key = GemmKeyOf(args);
  EXPECT_EQ(key.batch, 3);
  EXPECT_EQ(key.step_a, 68);
  EXPECT_EQ(key.step_b, 1);
  EXPECT_EQ(key.step_c, 66);
  EXPECT_EQ(key.align_a, 8) << "the second product begins 136 bytes behind the first";
  EXPECT_EQ(key.align_b, 2);
  EXPECT_EQ(key.align_c, 8);
  args.b_sum = TensorView(memory, DType::kFloat32, {8});
  EXPECT_FALSE(MayFuseSum(GemmKeyOf(args)));
}

}  // namespace
}  // namespace anyorder::kernels::cuda
