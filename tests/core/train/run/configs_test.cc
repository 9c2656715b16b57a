// Every file in configs/ and its folders is a valid run.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/match.h"

#include "core/base/whole_file.h"
#include "core/network/tensors/parameters.h"
#include "core/train/run/config_file.h"

namespace anyorder {
namespace {

std::string ConfigFolder() {
  const char* const source = std::getenv("ANYORDER_SOURCE");
  return std::string(source != nullptr ? source : ".") + "/configs/";
}

TEST(ConfigsTest, EveryFileRunsOnOneToEightRanksAndSaysItsHardware) {
  int64_t num_files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(ConfigFolder())) {
    const std::string file = entry.path().string();
    if (!absl::EndsWith(file, ".toml")) continue;
    ++num_files;
    const RunConfig config = LoadRunConfig(file, {}).value();
    EXPECT_LT(config.optimizer.warmup_steps, config.train.steps) << file;
    for (int ranks = 1; ranks <= 8; ++ranks)
      EXPECT_TRUE(config.ValidateWorldSize(ranks).ok()) << file << " on " << ranks;
    // The head of a file says what machine it is for; small ones ask for no GPU.
    const std::string text = ReadWholeFile(file, kMaxTextBytes).value();
    const std::string head = text.substr(0, text.find("\n["));
    EXPECT_TRUE(absl::StrContains(head, "\n# Hardware: ")) << file;
    EXPECT_EQ(config.train.device == kernels::DeviceChoice::kCpu,
              absl::EndsWith(file, "-tiny.toml"))
        << file;
  }
  EXPECT_GE(num_files, 4);
}

// Totals of the published networks, each with the unused mask_emb: 204 bytes of enwik8, 267,735
// words of WikiText-103 (its large network's is the sum of the released tensors); the released
// BERT-Base with its 30,522 pieces and both heads; GPT with 40,478; UniLM is BERT-Large with six
// segments instead of two. LLaDA's, Dream's and Qwen3's are sums of the shapes of their tensors.
TEST(ConfigsTest, FilesHaveThePublishedTotals) {
  struct Published {
    const char* file;
    int64_t vocab_size;
    int64_t parameters;
  };
  for (const Published& published :
       {Published{"transformer-xl-enwik8.toml", 204, 41055436},
        Published{"transformer-xl-wt103.toml", 267735, 151107538},
        Published{"transformer-xl-wt103-large.toml", 267735, 285205322},
        Published{"bert-base.toml", 30522, 110106428}, Published{"gpt-base.toml", 40478, 116534784},
        Published{"unilm-large.toml", 30522, 336226108 + 4 * 1024},
        Published{"llada-8b.toml", 126464, 8015581184},
        Published{"dream-7b.toml", 152064, 7615616512},
        Published{"qwen3-0.6b-diffusion.toml", 151936, 596049920}}) {
    const RunConfig config = LoadRunConfig(ConfigFolder() + published.file, {}).value();
    EXPECT_EQ(ParameterLayout(config.model, published.vocab_size).num_elements(),
              published.parameters + config.model.model_dim)
        << published.file;
  }
}

}  // namespace
}  // namespace anyorder
