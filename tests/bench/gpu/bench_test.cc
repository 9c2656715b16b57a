// Every group of gpu_bench runs, at a size of nothing, and prints lines that a JSON reader takes.
// As gpu_bench does it: memory that the host cannot touch, work that is done when somebody waits,
// time by events. And what it counts.

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/train/run/config_file.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/bench/gpu/cases.h"
#include "tests/emulated_gpu/runtime.h"

namespace anyorder::bench {
namespace {

constexpr XlnetSize kSmallest{"large", 2, 16, 2, 24, 50, 16, 8, 4};

class GpuBenchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto runtime = kernels::cuda::emulation::MakeEmulatedRuntime({});
    timer_ = std::make_unique<EventTimer>(*runtime);
    backend_ = kernels::cuda::MakeCudaBackend(std::move(runtime), {}).value();
  }
  Bench MakeBench() { return Bench(*backend_, *timer_, 2, 0.0, out_); }
  // Of every line.
  std::multiset<std::string> Names() {
    std::multiset<std::string> names;
    std::istringstream lines(out_.str());
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      EXPECT_TRUE(json.is_object() && json.contains("value")) << line;
      if (json.is_object()) names.insert(json.value("name", ""));
    }
    return names;
  }

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<Timer> timer_;  // after the backend, whose runtime it uses
  std::ostringstream out_;
};

// One step between the marks, after others.
TEST_F(GpuBenchTest, AProfilerSeesOneStep) {
  Bench bench = MakeBench();
  std::string marks;
  const ProfilerMarks profiler = {[&] { marks += "begin "; }, [&] { marks += "end"; }};
  const absl::Status status = MeasureStep(bench, kSmallest, 2, 0.1, &profiler);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(marks, "begin end");
  EXPECT_EQ(Names(), std::multiset<std::string>{"step_once_large_b2"});
  EXPECT_NE(out_.str().find("\"samples\": 1,"), std::string::npos);
}

TEST_F(GpuBenchTest, MeasuresCeilingsFirstAndSharesOfThem) {
  Bench bench = MakeBench();
  MeasureCeilings(bench, {.copy_bytes = 4096, .gemm = 8});
  EXPECT_EQ(out_.str().find("share_of_ceiling"), std::string::npos);
  MeasureGemms(bench, kSmallest, 1);
  MeasureRows(bench, kSmallest, 1, 0.1);
  MeasureAttention(bench, kSmallest, 1, 0.1);
  const absl::Status step = MeasureStep(bench, kSmallest, 1, 0.1);
  ASSERT_TRUE(step.ok()) << step;
  std::multiset<std::string> names = Names();
  EXPECT_EQ(std::erase_if(names, [](const auto& name) { return name.starts_with("gemm_"); }), 18u);
  EXPECT_EQ(names, (std::multiset<std::string>{
                       "adamw_large", "attention_backward_a_b1", "attention_backward_b1",
                       "attention_backward_distances_b1", "attention_backward_keys_b1",
                       "attention_backward_parameters_b1", "attention_backward_prepare_b1",
                       "attention_forward_b1", "attention_plan_b1", "classifier", "copy",
                       "embedding_backward", "gelu", "gelu_backward", "gemm", "layernorm",
                       "layernorm_backward", "step_large_b1", "sum_of_squares"}));
  for (const char* const key : {"\"share_of_ceiling\": ", "\"ms_a_lane\": "})
    EXPECT_NE(out_.str().find(key), std::string::npos) << key;
}

// Heads of both kernels' kinds, both directions of reading.
TEST_F(GpuBenchTest, MeasuresPlainAttention) {
  Bench bench = MakeBench();
  MeasurePlainAttention(bench, {.heads = 4, .kv_heads = 2, .head_dim = 64, .length = 16}, 2);
  MeasurePlainAttention(
      bench, {.heads = 2, .kv_heads = 1, .head_dim = 128, .length = 8, .is_causal = false}, 1);
  EXPECT_EQ(Names(), (std::multiset<std::string>{
                         "plain_d128_t8_both_backward", "plain_d128_t8_both_forward",
                         "plain_d64_t16_causal_backward", "plain_d64_t16_causal_forward"}));
}

// The networks of check.sh's part `networks`, each smaller.
TEST_F(GpuBenchTest, MeasuresStepsOfConfigurations) {
  const char* const source = std::getenv("ANYORDER_SOURCE");
  const std::string root = source != nullptr ? source : ".";
  const std::vector<std::string> smaller = {
      "model.num_layers=1",       "model.model_dim=16",       "model.num_heads=2",
      "model.head_dim=8",         "model.ffn_dim=24",         "sampling.seq_len=16",
      "train.micro_batch_size=2", "train.global_batch_size=2"};
  std::multiset<std::string> expected;
  for (const std::string name :
       {"tests/gpu/llama-1.1b", "configs/qwen3-0.6b-diffusion", "configs/gpt-base",
        "configs/bert-base", "configs/mdlm-small", "configs/llada-8b"}) {
    std::vector<std::string> keys = smaller;
    if (name.find("llama") != std::string::npos || name.find("qwen") != std::string::npos)
      keys.push_back("model.num_kv_heads=1");
    if (name.find("bert") != std::string::npos) {
      keys.insert(keys.end(), {"sampling.reuse_len=8", "sampling.num_predict=4",
                               "objective.next_sentence=false"});
    }
    const auto config = LoadRunConfig(root + "/" + name + ".toml", keys);
    ASSERT_TRUE(config.ok()) << config.status();
    Bench bench = MakeBench();
    const absl::Status step = MeasureStep(bench, name, *config, 70);
    ASSERT_TRUE(step.ok()) << step;
    expected.insert("step_" + name);
  }
  EXPECT_EQ(Names(), expected);
  EXPECT_NE(out_.str().find("\"shape\": \"B2 T16 V70\""), std::string::npos) << out_.str();
}

// The median of samples, and buffers in turn.
TEST_F(GpuBenchTest, TakesTheMedianOverRotatedBuffers) {
  class FakeTimer final : public Timer {
   public:
    void Begin(int) override {}
    void End(int) override {}
    double Milliseconds(int sample) override { return sample == 1 ? 100.0 : 2.0 + sample; }
  } timer;
  Bench bench(*backend_, timer, 5, 0.0, out_);
  std::vector<int> sets;
  const Measured measured = bench.Measure({"case", "shape", Work::kBytes, 4e9}, 3,
                                          [&](size_t set) { sets.push_back(set); });
  // 2, 100, 4, 5 and 6 ms, of one call each.
  EXPECT_DOUBLE_EQ(measured.seconds, 5e-3);
  EXPECT_EQ(sets, (std::vector<int>{0, 2, 0, 1, 2, 0, 1}));
  EXPECT_NE(out_.str().find("\"value\": 0.8, \"unit\": \"TB/s\", \"ms\": 5,"), std::string::npos)
      << out_.str();
}

// Numbers worked out by hand from the definitions, for XLNet's two published sizes.
TEST(CountsTest, AreThoseOfThePublishedSizes) {
  EXPECT_NEAR(CountFlops(kXlnetLarge), 1352.9e9, 0.05e9);
  EXPECT_NEAR(CountFlops(kXlnetBase), 407.4e9, 0.05e9);
  EXPECT_NEAR(AttentionUnit(kXlnetLarge), 0.939e9, 0.0005e9);
  EXPECT_NEAR(static_cast<double>(CountParameters(kXlnetLarge)), 360.3e6, 0.05e6);
  EXPECT_NEAR(static_cast<double>(CountParameters(kXlnetBase)), 116.8e6, 0.05e6);
}

}  // namespace
}  // namespace anyorder::bench
