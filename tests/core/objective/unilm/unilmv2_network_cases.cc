// What one forward pass of the pseudo-masked language model is equal to, on the whole network in
// fp64: its last layer's states against those of passes that hold only some of the slots.

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <tuple>

#include "tests/core/objective/unilm/unilmv2_fixture.h"
#include "tests/testing/forwarding_backend.h"

namespace anyorder::testing {
namespace {

// States are of order one. Two passes add the same numbers in another order, a few dozen of them in
// each of a few layers.
constexpr double kDoubleBound = 1e-11;

// Keeps what the softmax over the vocabulary reads: without a prediction head the states of the
// readout's rows.
class StatesBackend final : public ForwardingBackend {
 public:
  StatesBackend() : ForwardingBackend(kernels::MakeReferenceBackend()) {}
  void LinearCrossEntropy(const kernels::LinearCrossEntropyArgs& args, StreamView stream) override {
    const double* x = args.x.data<double>();
    states.assign(x, x + args.x.num_elements());
    ForwardingBackend::LinearCrossEntropy(args, stream);
  }
  std::vector<double> states;
};

using SlotId = std::tuple<PmlmKind, int64_t>;  // kind and position
using States = std::map<SlotId, std::vector<double>>;

struct PositionCase {
  const char* name;
  Positions positions;
  PositionBias bias = PositionBias::kNone;
};

class OnePassTest : public UnilmV2Test, public ::testing::WithParamInterface<PositionCase> {
 protected:
  OnePassTest() {
    model_.positions = GetParam().positions;
    model_.position_bias = GetParam().bias;
    model_.position_buckets = 8;
    model_.position_bias_max_distance = 6;
    if (model_.positions == Positions::kRelative) model_.segments = Segments::kRelative;
  }

  // The last layer's states of `slots` in the objective's own batch. `change` may edit the batch
  // before.
  States OfOnePass(
      const TextSample& sample, const std::vector<PmlmSlot>& slots,
      const std::function<void(Batch&)>& change = [](Batch&) {}) const {
    Batch batch = Build(sample);
    change(batch);
    std::vector<int64_t> rows;
    for (const PmlmSlot& slot : slots) rows.push_back(slot.row);
    return Run(ReadingOut(batch, rows), slots);
  }

  // The same of a pass that holds `slots` and nothing else, seeing one another as the paper's rule
  // has it.
  States OfPassWithOnly(const TextSample& sample, const std::vector<PmlmSlot>& slots) const {
    const Batch whole = Build(sample);
    BatchShape shape = whole.shape;
    shape.content_rows = static_cast<int64_t>(slots.size());
    shape.own_divisor = false;
    shape.loss_names.clear();
    Batch batch(shape);
    batch.step = whole.step;
    std::vector<int64_t> rows;
    for (size_t i = 0; i < slots.size(); ++i) {
      const PmlmSlot& slot = slots[i];
      rows.push_back(static_cast<int64_t>(i));
      batch.row_pos[i] = batch.key_pos[i] = static_cast<int32_t>(slot.pos);
      batch.row_seg[i] = batch.key_seg[i] = whole.row_seg[slot.row];
      batch.tokens[i] = whole.tokens[slot.row];
      if (slot.kind == PmlmKind::kP) {
        batch.row_lim[i] = slot.step - 1;
        batch.key_key[i] = kernels::kKeyNever;
        batch.row_grp[i] = batch.key_grp[i] = slot.step;
        continue;
      }
      batch.row_lim[i] = batch.key_key[i] = slot.kind == PmlmKind::kM ? 0 : slot.step;
    }
    return Run(ReadingOut(batch, rows), slots);
  }

  static std::vector<PmlmSlot> Of(const std::vector<PmlmSlot>& slots,
                                  const std::function<bool(const PmlmSlot&)>& take) {
    std::vector<PmlmSlot> taken;
    std::copy_if(slots.begin(), slots.end(), std::back_inserter(taken), take);
    return taken;
  }
  static int StepsOf(const std::vector<PmlmSlot>& slots) {
    int steps = 0;
    for (const PmlmSlot& slot : slots) steps = std::max(steps, slot.step);
    return steps;
  }
  static bool IsGiven(const PmlmSlot& slot) {
    return slot.kind == PmlmKind::kM || (slot.kind == PmlmKind::kToken && slot.step == 0);
  }
  static void ExpectEqual(const States& all, const States& some, const std::string& what) {
    for (const auto& [id, state] : some)
      EXPECT_LT(Distance(all.at(id), state), kDoubleBound)
          << what << ", slot of kind " << static_cast<int>(std::get<0>(id)) << " at "
          << std::get<1>(id);
  }

 private:
  // The batch with a readout of `rows`, one target each.
  static Batch ReadingOut(const Batch& batch, const std::vector<int64_t>& rows) {
    Batch read = batch;
    read.shape.targets = static_cast<int64_t>(rows.size());
    read.readout_rows.assign(rows.begin(), rows.end());
    read.labels.assign(rows.size(), 5);
    read.weights.assign(rows.size(), 1.0f);
    if (!read.shape.loss_names.empty()) read.loss_ids.assign(rows.size(), 0);
    return read;
  }
  States Run(const Batch& batch, const std::vector<PmlmSlot>& slots) const {
    StatesBackend backend;
    ModelRunner runner(model_, kSmallVocab, batch.shape, backend);
    runner.Run(batch, InitialWeights(model_, kSmallVocab, 51), {}, false);
    States states;
    const auto dim = static_cast<size_t>(model_.model_dim);
    for (size_t i = 0; i < slots.size(); ++i)
      states[{slots[i].kind, slots[i].pos}] = {backend.states.begin() + i * dim,
                                               backend.states.begin() + (i + 1) * dim};
    return states;
  }
};

TEST_P(OnePassTest, AutoencodingStatesAreThoseOfAPassOverContextAndMasksAlone) {
  for (int64_t lane = 0; lane < 4; ++lane) {
    const TextSample sample = Sample(lane);
    const std::vector<PmlmSlot> slots = Slots(sample);
    const States all = OfOnePass(sample, slots);
    ExpectEqual(all, OfPassWithOnly(sample, Of(slots, IsGiven)), "autoencoding");
  }
}

TEST_P(OnePassTest, StatesOfAStepAreThoseOfAPassWithoutAnythingLater) {
  for (int64_t lane = 0; lane < 4; ++lane) {
    const TextSample sample = Sample(lane);
    const std::vector<PmlmSlot> slots = Slots(sample);
    ASSERT_GT(StepsOf(slots), 1);
    const States all = OfOnePass(sample, slots);
    for (int step = 1; step <= StepsOf(slots); ++step) {
      const auto known = [step](const PmlmSlot& slot) {
        return IsGiven(slot) || (slot.kind == PmlmKind::kToken && slot.step < step) ||
               (slot.kind == PmlmKind::kP && slot.step == step);
      };
      ExpectEqual(all, OfPassWithOnly(sample, Of(slots, known)),
                  "step " + std::to_string(step) + " of lane " + std::to_string(lane));
    }
  }
}

// The example of the paper's figure: of 4, 5 -> 2, changing x4 moves x4, x5, x2 and P2 only.
TEST_P(OnePassTest, ATokenMovesItsStepWhatComesLaterAndNothingElse) {
  int64_t moved = 0, still = 0;
  for (int64_t lane = 0; lane < 4; ++lane) {
    const TextSample sample = Sample(lane);
    const std::vector<PmlmSlot> slots = Slots(sample);
    const States before = OfOnePass(sample, slots);
    for (const PmlmSlot& token : slots) {
      if (token.kind != PmlmKind::kToken || token.step == 0) continue;
      const States after = OfOnePass(sample, slots, [&](Batch& batch) {
        batch.tokens[token.row] = (batch.tokens[token.row] + 1) % kSmallVocab;
      });
      for (const PmlmSlot& slot : slots) {
        const bool may_move = (slot.kind == PmlmKind::kToken && slot.step >= token.step) ||
                              (slot.kind == PmlmKind::kP && slot.step > token.step);
        const double distance =
            Distance(before.at({slot.kind, slot.pos}), after.at({slot.kind, slot.pos}));
        ++(may_move ? moved : still);
        if (may_move) {
          EXPECT_GT(distance, 1e-6) << slot.pos << " after " << token.pos;
        } else {
          EXPECT_EQ(distance, 0) << slot.pos << " after " << token.pos;
        }
      }
    }
  }
  EXPECT_GT(moved, 50);
  EXPECT_GT(still, 200);
}

// It is not a cloze per step that reads both ways: the context never reads what was revealed.
TEST_P(OnePassTest, TheContextDoesNotReadRevealedTokensAgain) {
  const TextSample sample = Sample(2);
  const std::vector<PmlmSlot> slots = Slots(sample);
  const int last = StepsOf(slots);
  const States all = OfOnePass(sample, slots);
  std::vector<PmlmSlot> cloze;
  for (PmlmSlot slot : slots) {
    if (slot.kind == PmlmKind::kToken && slot.step < last) slot.step = 0;
    if (slot.kind == PmlmKind::kM || (slot.kind == PmlmKind::kToken && slot.step == 0) ||
        (slot.kind == PmlmKind::kP && slot.step == last))
      cloze.push_back(slot);
  }
  const States both_ways = OfPassWithOnly(sample, cloze);
  for (const PmlmSlot& slot : Of(cloze, [](const PmlmSlot& s) { return s.kind == PmlmKind::kP; }))
    EXPECT_GT(Distance(all.at({slot.kind, slot.pos}), both_ways.at({slot.kind, slot.pos})), 1e-6);
}

TEST_P(OnePassTest, WithoutKeptOriginalsNoLossDependsOnTheTokenItAsksFor) {
  for (const KeptOriginals kept :
       {KeptOriginals::kMask, KeptOriginals::kDropPar, KeptOriginals::kLeak}) {
    sampling_.kept_originals = kept;
    int64_t leaks = 0;
    for (int64_t lane = 0; lane < 12; ++lane) {
      const TextSample sample = Sample(lane);
      const Batch batch = Build(sample);
      ModelRunner runner(model_, kSmallVocab, batch.shape);
      const std::vector<double> weights = InitialWeights(model_, kSmallVocab, 41);
      const std::vector<float> losses = runner.Run(batch, weights, {}, false).losses;
      for (const PmlmSlot& slot : Slots(sample)) {
        if (slot.kind != PmlmKind::kToken || slot.step == 0) continue;
        // Another text, and thereby another kept original, but the same question.
        TextSample renamed = sample;
        int32_t& token = renamed.tokens[(slot.pos + kSlots - 1) % kSlots];
        token = token == 5 ? 6 : 5;
        Batch other = Build(renamed);
        const std::vector<int32_t> labels = other.labels;
        other.labels = batch.labels;
        const std::vector<float> after = runner.Run(other, weights, {}, false).losses;
        for (size_t i = 0; i < losses.size(); ++i) {
          const bool asks = labels[i] != batch.labels[i];
          const bool counts = batch.weights[i] != 0 && other.weights[i] != 0;
          if (asks && counts && batch.loss_ids[i] == 1) leaks += after[i] != losses[i];
        }
      }
    }
    EXPECT_EQ(leaks > 0, kept == KeptOriginals::kLeak) << leaks << " of " << static_cast<int>(kept);
  }
}

INSTANTIATE_TEST_SUITE_P(Positions, OnePassTest,
                         ::testing::Values(PositionCase{"learned", Positions::kLearned},
                                           PositionCase{"learned_and_t5", Positions::kLearned,
                                                        PositionBias::kT5},
                                           PositionCase{"relative", Positions::kRelative},
                                           PositionCase{"rope", Positions::kRope}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace anyorder::testing
