// Random slots of lanes of different length, some of which are kept: against the same network
// without kept keys, and each lane alone with a mask written pair by pair. Logits that are made a
// few rows at a time: against those that are made together.

#include "core/generate/slot_network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "tests/core/generate/any_order/canvas_cases.h"
#include "tests/core/generate/any_order/plain_pass.h"
#include "tests/core/network/counting_backend.h"
#include "tests/testing/fenced_backend.h"
#include "tests/testing/forwarding_backend.h"

namespace anyorder::testing {
namespace {

constexpr int64_t kSlotLanes = 3;
constexpr int64_t kMostKept = 9;
constexpr int64_t kMostPassing = 24;
constexpr int64_t kSpan = 16;

// Of a model that writes without queries, or in two streams.
CanvasModel SlotModel(Backbone backbone, CanvasFamily family = CanvasFamily::kMasked,
                      int64_t vocab_size = 13) {
  return MakeCanvasModel("slots", backbone, {.family = family, .seq_len = 16}, vocab_size);
}

// A network on `backend`, and the weights that it reads.
struct OpenSlots {
  DeviceVector weights;
  std::unique_ptr<SlotNetwork> network;

  OpenSlots(const CanvasModel& model, const SlotNetworkOptions& options,
            kernels::Backend& backend = SharedReference())
      : weights(backend, DType::kFloat64, std::ssize(model.weights)) {
    weights.Assign(model.weights);
    network = SlotNetwork::Create(model.model, model.vocab_size, weights.view(), options, backend)
                  .value();
  }
  SlotNetwork* operator->() const { return network.get(); }
};

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
  for (const Backbone backbone : {BackboneXlnet, MakeLlama}) {
    const CanvasModel model = SlotModel(backbone, CanvasFamily::kTwoStream);
    const OpenSlots kept(model, {.lanes = kSlotLanes, .key_slots = kMostKept, .span = kSpan});
    const OpenSlots again(
        model, {.lanes = kSlotLanes, .key_slots = kMostKept, .span = kSpan, .cached = false});
    PlainPass plain(model);
    RandomStream random(71, RandomPurpose::kPairs, 0, 0);
    std::vector<LaneWalk> lanes(kSlotLanes);
    std::vector<double> a, b;
    for (int round = 0; round < 150; ++round) {
      // Only lanes that were never reordered run without those behind them.
      const bool is_early = round < 20;
      const int64_t count = is_early ? 1 + random.Below(kSlotLanes) : kSlotLanes;
      if (!is_early && random.Below(3) == 0) {
        std::vector<int32_t> parents;
        std::vector<LaneWalk> heirs;
        for (int64_t lane = 0; lane < kSlotLanes; ++lane) {
          parents.push_back(static_cast<int32_t>(random.Below(kSlotLanes)));
          heirs.push_back(lanes[parents.back()]);
        }
        lanes = heirs;
        kept->Reorder(parents);
        again->Reorder(parents);
      }
      std::vector<LanePass> passes;
      for (int64_t lane = 0; lane < count; ++lane) {
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
      for (int64_t lane = 0; lane < count; ++lane) {
        const LaneWalk& walk = lanes[lane];
        ASSERT_EQ(kept->kept(lane), static_cast<int64_t>(walk.kept.size()));
        if (walk.reads.empty()) continue;
        const LogitRows rows = plain.Logits(
            walk.content, walk.queries, [&](size_t row, size_t key) { return key <= row; },
            walk.reads);
        for (size_t i = 0; i < walk.reads.size(); ++i) {
          ASSERT_TRUE(kept->ReadRow(lane, static_cast<int64_t>(i), &a).ok());
          ASSERT_TRUE(again->ReadRow(lane, static_cast<int64_t>(i), &b).ok());
          ASSERT_EQ(a, b) << "round " << round << " lane " << lane << " read " << i;
          for (size_t v = 0; v < a.size(); ++v) ASSERT_NEAR(a[v], rows[i][v], 1e-11) << round;
        }
      }
    }
    EXPECT_EQ(kept->passes(), 150);
    EXPECT_LT(kept->rows(), again->rows());
  }
}

TEST(SlotNetworkTest, KeysThatLanesShareAreNotCopiedAgain) {
  const CanvasModel model = SlotModel(MakeLlama, CanvasFamily::kTwoStream);
  CountingBackend backend(model.vocab_size);
  const OpenSlots network(model, {.lanes = 4, .key_slots = 8, .span = 16}, backend);
  const auto slots = [](std::initializer_list<int32_t> positions) {
    LanePass pass;
    for (const int32_t i : positions) pass.lasting.push_back(RankedSlot(5 + i, i, i));
    return pass;
  };
  // Two texts, two lanes each.
  ASSERT_TRUE(network->Run({slots({0, 1, 2}), slots({0, 1})}).ok());
  const auto copied = [&](const std::vector<int32_t>& parents) {
    const int64_t before = backend.copied();
    network->Reorder(parents);
    const int64_t keys_dim = model.model.kv_heads() * model.model.head_dim;
    return (backend.copied() - before) / (2 * model.model.num_layers * keys_dim);
  };
  EXPECT_EQ(copied({0, 0, 1, 1}), 3 + 2);
  EXPECT_EQ(copied({1, 0, 3, 2}), 0);
  ASSERT_TRUE(network->Run({slots({3}), slots({4}), slots({2, 3}), slots({2, 3})}).ok());
  EXPECT_EQ(copied({1, 1, 3, 3}), 1 + 2);
  EXPECT_EQ(copied({0, 0, 2, 2}), 0);
}

// Networks whose logits come in each of the ways that there are.
std::vector<CanvasModel> ModelsOfEveryHead() {
  const CanvasModel tied = MakeCanvasModel("tied", BackboneXlnet, TwoStreamForm());
  CanvasModel head = MakeCanvasModel("head", BackboneLearned, TwoStreamForm());
  head.model.mlm_head = true;
  CanvasModel adaptive = tied;
  adaptive.name = "adaptive";
  adaptive.model.softmax = Softmax::kAdaptive;
  adaptive.model.cutoffs = "6, 9";
  CanvasModel projected = adaptive;
  projected.name = "projected";
  projected.model.div_val = 2;
  std::vector<CanvasModel> models = {tied, head, adaptive, projected};
  for (CanvasModel& model : models)
    model.weights = InitialWeights(model.model, model.vocab_size, 42);
  return models;
}

// Rows of `passes` in the order of lanes and reads, or in the opposite one.
LogitRows ReadAll(const OpenSlots& network, const std::vector<LanePass>& passes, bool goes_back) {
  std::vector<std::pair<int64_t, int64_t>> reads;
  for (size_t lane = 0; lane < passes.size(); ++lane)
    for (size_t i = 0; i < passes[lane].reads.size(); ++i) reads.emplace_back(lane, i);
  if (goes_back) std::reverse(reads.begin(), reads.end());
  LogitRows rows;
  for (const auto& [lane, read] : reads)
    EXPECT_TRUE(network->ReadRow(lane, read, &rows.emplace_back()).ok());
  if (goes_back) std::reverse(rows.begin(), rows.end());
  return rows;
}

TEST(SlotNetworkTest, LogitsOfFewRowsAtATimeHaveTheSameBits) {
  for (const CanvasModel& model : ModelsOfEveryHead()) {
    SCOPED_TRACE(model.name);
    FencedBackend fenced(kernels::MakeReferenceBackend());
    for (kernels::Backend* const backend :
         {&SharedReference(), static_cast<kernels::Backend*>(&fenced)}) {
      std::deque<OpenSlots> networks;
      for (const int64_t rows : {1000, 1, 3}) {
        networks.emplace_back(
            model,
            SlotNetworkOptions{.lanes = kSlotLanes,
                               .key_slots = kMostKept,
                               .span = kSpan,
                               .logit_bytes = rows * model.vocab_size * SizeOf(DType::kFloat64)},
            *backend);
      }
      RandomStream random(72, RandomPurpose::kPairs, 0, 0);
      std::vector<LaneWalk> lanes(kSlotLanes);
      for (int round = 0; round < 12; ++round) {
        std::vector<LanePass> passes;
        for (LaneWalk& walk : lanes) {
          walk.Next(model, random);
          passes.push_back(walk.pass);
        }
        for (const OpenSlots& network : networks) ASSERT_TRUE(network->Run(passes).ok());
        const LogitRows expected = ReadAll(networks[0], passes, /*goes_back=*/false);
        for (const OpenSlots& network : networks) {
          EXPECT_EQ(ReadAll(network, passes, /*goes_back=*/false), expected) << round;
          EXPECT_EQ(ReadAll(network, passes, /*goes_back=*/true), expected) << round;
        }
      }
    }
  }
}

// A pass with so many reads in each of two lanes.
std::vector<LanePass> TwoLanesOf(int64_t reads) {
  LanePass pass;
  for (int64_t i = 0; i < 64; ++i) pass.passing.push_back(RankedSlot(5, i, 0));
  for (int64_t i = 0; i < reads; ++i) pass.reads.push_back(i);
  return {pass, pass};
}

TEST(SlotNetworkTest, MemoryOfLogitsDoesNotGrowWithReads) {
  constexpr int64_t kManyTokens = 50'000;
  constexpr int64_t kRowBytes = kManyTokens * SizeOf(DType::kFloat64);
  const CanvasModel model = SlotModel(MakeLlama, CanvasFamily::kMasked, kManyTokens);
  const auto bytes_of = [&](int64_t reads, int64_t logit_bytes) {
    CountingBackend backend(kManyTokens);
    const OpenSlots network(
        model,
        {.lanes = 2, .key_slots = 64, .span = 64, .cached = false, .logit_bytes = logit_bytes},
        backend);
    std::vector<double> logits;
    EXPECT_TRUE(network->Run(TwoLanesOf(reads)).ok());
    EXPECT_TRUE(network->ReadRow(1, reads - 1, &logits).ok());
    EXPECT_EQ(logits.size(), static_cast<size_t>(kManyTokens));
    return backend.bytes();
  };
  constexpr int64_t kLogitBytes = 4 * kRowBytes;
  EXPECT_LT(bytes_of(64, kLogitBytes) - bytes_of(4, kLogitBytes), kRowBytes);
  EXPECT_GE(bytes_of(64, 200 * kRowBytes) - bytes_of(64, kLogitBytes), (128 - 4) * kRowBytes);
}

TEST(SlotNetworkTest, LogitsAreMadeOnceIfRowsAreReadInOrder) {
  const CanvasModel model = SlotModel(MakeLlama);
  for (const int64_t rows : {1, 5}) {
    CountingBackend backend(model.vocab_size);
    const OpenSlots network(model,
                            {.lanes = 2,
                             .key_slots = 64,
                             .span = 64,
                             .cached = false,
                             .logit_bytes = rows * model.vocab_size * SizeOf(DType::kFloat64)},
                            backend);
    const std::vector<LanePass> passes = TwoLanesOf(10);
    ASSERT_TRUE(network->Run(passes).ok());
    EXPECT_EQ(backend.logit_rows(), 0);
    ReadAll(network, passes, /*goes_back=*/false);
    EXPECT_EQ(backend.logit_rows(), 20);
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
  RefusingBackend backend;
  const OpenSlots network(SlotModel(MakeLlama),
                          {.lanes = 1, .key_slots = 8, .span = 16, .cached = false}, backend);
  const auto run = [&](int64_t slots, std::vector<double>* logits) {
    LanePass pass;
    for (int64_t i = 0; i < slots; ++i) pass.passing.push_back(RankedSlot(5, i, 0));
    pass.reads = {0};
    const absl::Status status = network->Run({pass});
    return status.ok() ? network->ReadRow(0, 0, logits) : status;
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

TEST(SlotNetworkTest, APassNeedsNoRoomForWhatOtherLanesKeep) {
  const CanvasModel model = SlotModel(MakeLlama);
  // Of a prompt's pass in lane 1, while lane 0 has so many slots.
  const auto bytes_of = [&](int64_t kept) {
    CountingBackend backend(model.vocab_size);
    const OpenSlots network(model, {.lanes = 2, .key_slots = 64, .span = 64}, backend);
    const auto run = [&](int64_t slots, int64_t lane) {
      LanePass pass;
      for (int64_t i = 0; i < slots; ++i) pass.lasting.push_back(RankedSlot(5, i, i));
      EXPECT_TRUE(network->Run({pass}, lane).ok());
    };
    run(kept, 0);
    const int64_t before = backend.bytes();
    run(40, 1);
    return backend.bytes() - before;
  };
  EXPECT_EQ(bytes_of(60), bytes_of(1));
}

TEST(SlotNetworkDeathTest, NoRowIsReadAfterLanesHaveComeOrGone) {
  const OpenSlots network(SlotModel(MakeLlama), {.lanes = 2, .key_slots = 64, .span = 64});
  std::vector<double> logits;
  ASSERT_TRUE(network->Run(TwoLanesOf(1)).ok());
  ASSERT_TRUE(network->AddLanes(1, 64, 80).ok());
  EXPECT_DEATH(static_cast<void>(network->ReadRow(0, 0, &logits)), "no pass to read");
  ASSERT_TRUE(network->Run(TwoLanesOf(1)).ok());
  network->RemoveLane(0);
  EXPECT_DEATH(static_cast<void>(network->ReadRow(0, 0, &logits)), "no pass to read");
}

TEST(SlotNetworkTest, SaysThatPositionsWereNotLearned) {
  const CanvasModel model = SlotModel(BackboneLearned);
  const test::HostTensor weights = test::TensorOf(DType::kFloat64, model.weights);
  ExpectTooLong(SlotNetwork::Create(model.model, model.vocab_size, weights.view(),
                                    {.lanes = 1, .key_slots = 17, .span = 17}, SharedReference())
                    .status(),
                "a text of 17 tokens, but the model has learned 16 positions");
}

}  // namespace
}  // namespace anyorder::testing
