// Random slots of lanes of different length, some of which are kept: against the same network
// without kept keys, and each lane alone with a mask written pair by pair.

#include "core/generate/slot_network.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/core/generate/any_order/canvas_cases.h"
#include "tests/core/generate/any_order/plain_pass.h"
#include "tests/testing/forwarding_backend.h"

namespace anyorder::testing {
namespace {

constexpr int64_t kSlotLanes = 3;
constexpr int64_t kMostKept = 9;
constexpr int64_t kMostPassing = 24;
constexpr int64_t kSpan = 16;

// A lane's slots as they come: ranks in order.
struct LaneWalk {
  std::vector<PlainPass::Place> kept;
  LanePass pass;
  std::vector<PlainPass::Place> content, queries;
  std::vector<size_t> reads;

  void Next(const CanvasModel& model, RandomStream& random) {
    pass = {};
    if (random.Below(5) == 0) {
      content = kept;
      queries.clear();
      reads.clear();
      return;
    }
    const auto add = [&](std::vector<Slot>* slots, std::vector<PlainPass::Place>* places) {
      const int64_t position = random.Below(kSpan);
      const int32_t token = RandomToken(model, random);
      places->push_back({token, position});
      if (slots != nullptr)
        slots->push_back(RankedSlot(token, position, static_cast<int64_t>(places->size()) - 1));
    };
    const size_t before = kept.size();
    for (auto left = random.Below(4); left > 0 && kept.size() < kMostKept; --left)
      add(&pass.lasting, &kept);
    content = kept;
    const bool is_long = random.Below(3) == 0;
    for (auto left = random.Below(is_long ? kMostPassing : 3); left > 0; --left)
      add(&pass.passing, &content);
    queries.clear();
    for (auto left = random.Below(4); left > 0; --left) {
      add(nullptr, &queries);
      pass.queries.push_back({.pos = static_cast<int32_t>(queries.back().position),
                              .lim = static_cast<int32_t>(content.size())});
    }
    reads.clear();
    const size_t own = content.size() - before + queries.size();
    for (auto left = own == 0 ? 0 : random.Below(5); left > 0; --left) {
      const size_t read = random.Below(static_cast<uint32_t>(own));
      pass.reads.push_back(static_cast<int64_t>(read));
      reads.push_back(before + read);
    }
  }
};

TEST(SlotNetworkTest, KeptKeysLanesAndRoundedRowsChangeNothing) {
  for (const CanvasBackbone backbone : {CanvasBackbone::kRelative, CanvasBackbone::kLlama}) {
    const CanvasModel model =
        MakeCanvasModel("slots", backbone, {.family = CanvasFamily::kTwoStream, .seq_len = 16});
    const test::HostTensor weights = test::TensorOf(DType::kFloat64, model.weights);
    const auto make = [&](bool cached) {
      return SlotNetwork::Create(
                 model.model, model.vocab_size, weights.view(),
                 {.lanes = kSlotLanes, .key_slots = kMostKept, .span = kSpan, .cached = cached},
                 SharedReference())
          .value();
    };
    const std::unique_ptr<SlotNetwork> kept = make(true);
    const std::unique_ptr<SlotNetwork> again = make(false);
    PlainPass plain(model);
    RandomStream random(71, RandomPurpose::kPairs, 0, 0);
    std::vector<LaneWalk> lanes(kSlotLanes);
    std::vector<double> a, b;
    for (int round = 0; round < 150; ++round) {
      std::vector<LanePass> passes;
      for (int64_t lane = 0; lane < kSlotLanes; ++lane) {
        LaneWalk& walk = lanes[lane];
        if (random.Below(4) == 0) {
          walk.kept.resize(random.Below(static_cast<uint32_t>(walk.kept.size()) + 1));
          kept->Keep(lane, static_cast<int64_t>(walk.kept.size()));
          again->Keep(lane, static_cast<int64_t>(walk.kept.size()));
        }
        walk.Next(model, random);
        passes.push_back(walk.pass);
      }
      ASSERT_TRUE(kept->Run(passes).ok());
      ASSERT_TRUE(again->Run(passes).ok());
      for (int64_t lane = 0; lane < kSlotLanes; ++lane) {
        const LaneWalk& walk = lanes[lane];
        ASSERT_EQ(kept->kept(lane), static_cast<int64_t>(walk.kept.size()));
        if (walk.reads.empty()) continue;
        const LogitRows rows = plain.Logits(
            walk.content, walk.queries, [&](size_t row, size_t key) { return key <= row; },
            walk.reads);
        for (size_t i = 0; i < walk.reads.size(); ++i) {
          kept->ReadRow(lane, static_cast<int64_t>(i), &a);
          again->ReadRow(lane, static_cast<int64_t>(i), &b);
          ASSERT_EQ(a, b) << "round " << round << " lane " << lane << " read " << i;
          for (size_t v = 0; v < a.size(); ++v) ASSERT_NEAR(a[v], rows[i][v], 1e-11) << round;
        }
      }
    }
    EXPECT_EQ(kept->passes(), 150);
    EXPECT_LT(kept->rows(), again->rows());
  }
}

// Refuses so many allocations.
class RefusingBackend final : public ForwardingBackend {
 public:
  RefusingBackend() : ForwardingBackend(kernels::MakeReferenceBackend()) {}
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Allocate(int64_t bytes) override {
    if (refusals == 0) return ForwardingBackend::Allocate(bytes);
    --refusals;
    return absl::ResourceExhaustedError("no memory");
  }
  int64_t refusals = 0;
};

TEST(SlotNetworkTest, MemoryOfOtherProgramsIsFreedBeforeItIsSaidToBeMissing) {
  const CanvasModel model = MakeCanvasModel("slots", CanvasBackbone::kLlama,
                                            {.family = CanvasFamily::kMasked, .seq_len = 16});
  const test::HostTensor weights = test::TensorOf(DType::kFloat64, model.weights);
  RefusingBackend backend;
  const std::unique_ptr<SlotNetwork> network =
      SlotNetwork::Create(model.model, model.vocab_size, weights.view(),
                          {.lanes = 1, .key_slots = 8, .span = 16, .cached = false}, backend)
          .value();
  const auto run = [&](int64_t slots, std::vector<double>* logits) {
    LanePass pass;
    for (int64_t i = 0; i < slots; ++i) pass.passing.push_back(RankedSlot(5, i, 0));
    pass.reads = {0};
    const absl::Status status = network->Run({pass});
    if (status.ok()) network->ReadRow(0, 0, logits);
    return status;
  };
  std::vector<double> logits, again;
  ASSERT_TRUE(run(2, &logits).ok());
  backend.refusals = 1;
  EXPECT_TRUE(run(3, &again).ok());
  backend.refusals = 2;
  EXPECT_TRUE(absl::IsResourceExhausted(run(4, &again)));
  backend.refusals = 0;
  ASSERT_TRUE(run(2, &again).ok());
  EXPECT_EQ(logits, again);
}

TEST(SlotNetworkTest, SaysThatPositionsWereNotLearned) {
  const CanvasModel model = MakeCanvasModel("learned", CanvasBackbone::kLearned,
                                            {.family = CanvasFamily::kMasked, .seq_len = 16});
  const test::HostTensor weights = test::TensorOf(DType::kFloat64, model.weights);
  ExpectInvalid(SlotNetwork::Create(model.model, model.vocab_size, weights.view(),
                                    {.lanes = 1, .key_slots = 17, .span = 17}, SharedReference())
                    .status(),
                "a text of 17 tokens, but the model has learned 16 positions");
}

}  // namespace
}  // namespace anyorder::testing
