#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "core/objective/any_order/any_order.h"
#include "core/objective/lane_frame.h"
#include "core/objective/rank_mask.h"

namespace anyorder {

namespace {

// What both objectives have alike.
class Diffusion : public AnyOrderObjective {
 public:
  Diffusion(const ObjectiveSettings& settings, CanvasFamily family)
      : AnyOrderObjective(settings), family_(family) {}

  std::string quantity() const final {
    return absl::StrCat(ShownQuantity(),
                        sampling_.hide_documents ? ", given where documents end" : "");
  }
  absl::StatusOr<CanvasForm> Canvas(const GenerationTokens& tokens) const final {
    return DiffusionCanvas(family_, config_, seq_len_, tokens);
  }

 protected:
  // Where documents are visible. Where they are not, what a token sees tells it where its own ends,
  // even if <eod> is masked.
  virtual std::string ShownQuantity() const { return DiffusionQuantity(config_); }

  // A slot that predicts the next token begins with <eod> what it predicts.
  std::vector<int32_t> Documents(const TextSample& sample) const {
    return DocumentsOf(sample, sampling_.hide_documents,
                       config_.shifted_readout ? EodPlace::kBeginsNext : EodPlace::kEndsDocument);
  }

 private:
  const CanvasFamily family_;
};

class MaskedDiffusion final : public Diffusion {
 public:
  explicit MaskedDiffusion(const ObjectiveSettings& settings)
      : Diffusion(settings, CanvasFamily::kMasked) {}

  BatchShape Shape(int64_t batch_size) const override {
    return WindowShape(
        {.seq_len = seq_len_, .content = seq_len_, .targets = seq_len_, .own_divisor = true},
        batch_size);
  }

  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    FillLaneIdentity(sample, b, batch);
    const int64_t length = DrawLength(sample);
    RandomStream random = LaneDraws(sample);
    MaskedText noise = DrawMasks(sample, config_, length, length, random);
    const std::vector<int32_t> documents = Documents(sample);
    const int64_t ahead = TokensAhead(sample.step);
    if (config_.loss_weight == LossWeight::kCart) WeighByContext(documents, noise);
    for (int64_t i = 0; i < seq_len_; ++i) {
      const bool is_masked = i < length && noise.masked[i] != 0;
      const int32_t token = is_masked ? sample.vocabulary.mask : sample.tokens[i];
      SetContentSlot(b, i, i < length ? TokenSlot(token, i, ahead, documents[i]) : PadSlot(i),
                     batch);
      SetReadout(b, i, ContentRow(batch.shape, b) + ReadSlot(i), sample.tokens[i],
                 i < length ? noise.weights[i] : 0.0f, batch);
    }
    batch.divisors[b] = DivisorOf(noise, config_);
  }

 private:
  // Later tokens that each sees at a step: with annealing they grow as the published rate of random
  // ones does, min(1, (step + 1) / anneal_steps).
  int64_t TokensAhead(int64_t step) const {
    const int64_t all = seq_len_ - 1;
    if (config_.annealing == Annealing::kNone || step + 1 >= config_.anneal_steps) return all;
    return (step + 1) * all / config_.anneal_steps;
  }

  // Who sees `ahead` later tokens and all before them sees more than those who stand before it:
  // positions are ranks of that mask, up to which each sees.
  Slot TokenSlot(int32_t token, int64_t i, int64_t ahead, int32_t document) const {
    Slot slot = RankedSlot(token, i, ahead < seq_len_ - 1 ? i : 0);
    if (ahead < seq_len_ - 1) slot.lim += static_cast<int32_t>(ahead);
    slot.doc = document;
    return slot;
  }

  // The slot that predicts token i. Shifted, no slot predicts token 0, which weighs nothing and has
  // the last one.
  int64_t ReadSlot(int64_t i) const {
    return config_.shifted_readout ? (i + seq_len_ - 1) % seq_len_ : i;
  }

  // LLaDA's short sequences, one length for all lanes of a step as there: so the model meets
  // lengths other than seq_len.
  int64_t DrawLength(const TextSample& sample) const {
    if (config_.random_length_prob == 0) return seq_len_;
    RandomStream random = StepDraws(sample);
    random.Uniform();  // the turn of the rates
    if (random.Uniform() >= config_.random_length_prob) return seq_len_;
    return 1 + static_cast<int64_t>(random.Below64(static_cast<uint64_t>(seq_len_)));
  }
};

class BlockDiffusion final : public Diffusion {
 public:
  explicit BlockDiffusion(const ObjectiveSettings& settings)
      : Diffusion(settings, CanvasFamily::kBlocks) {}

  BatchShape Shape(int64_t batch_size) const override {
    BatchShape shape = WindowShape(
        {.seq_len = seq_len_, .content = 2 * seq_len_, .targets = seq_len_, .own_divisor = true},
        batch_size);
    // Nobody looks further ahead than to the end of the own block.
    shape.min_distance = 1 - config_.block_len;
    shape.num_distances = seq_len_ - shape.min_distance;
    return shape;
  }

  // Slots [0, T): the clean text. [T, 2T): the noised one, keys only to its own block.
  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    FillLaneIdentity(sample, b, batch);
    RandomStream random = LaneDraws(sample);
    const MaskedText noise = DrawMasks(sample, config_, seq_len_, config_.block_len, random);
    const std::vector<int32_t> documents = Documents(sample);
    for (int64_t i = 0; i < seq_len_; ++i) {
      const auto block = static_cast<int32_t>(i / config_.block_len);
      Slot clean = RankedSlot(sample.tokens[i], i, block);
      const int32_t token = noise.masked[i] != 0 ? sample.vocabulary.mask : sample.tokens[i];
      Slot noised = GroupSlot(token, i, block - 1, block);
      clean.doc = noised.doc = documents[i];
      SetContentSlot(b, i, clean, batch);
      SetContentSlot(b, seq_len_ + i, noised, batch);
      SetReadout(b, i, ContentRow(batch.shape, b) + ReadSlot(i), sample.tokens[i], noise.weights[i],
                 batch);
    }
    batch.divisors[b] = DivisorOf(noise, config_);
  }

 private:
  std::string ShownQuantity() const override {
    // A single token is masked or not: whatever the rate, its loss over the rate is unbiased.
    if (config_.block_len == 1 && AverageIsNll(config_)) {
      return config_.keep_first_token ? "NLL of each token but the first given those before it"
                                      : "NLL of each token given those before it";
    }
    return DiffusionQuantity(config_);
  }

  // As above. Shifted, a block's first token is predicted by the clean slot before it, which sees
  // what the block sees, the clean blocks; the noised slot before it does not see its own tokens.
  int64_t ReadSlot(int64_t i) const {
    if (!config_.shifted_readout) return seq_len_ + i;
    if (i == 0) return 2 * seq_len_ - 1;
    return i % config_.block_len == 0 ? i - 1 : seq_len_ + i - 1;
  }
};

absl::Status CheckDiffusion(const AnyOrderConfig& config) {
  RETURN_IF_ERROR(CheckMaskRates(config));
  if (config.loss_divisor == LossDivisor::kAnswers) {
    return absl::InvalidArgumentError(
        "[sampling] loss_divisor is \"answers\", but windows of text have none; use \"tokens\" or "
        "\"masked\", or objective.name = \"masked_diffusion_sft\"");
  }
  if (!config.shifted_readout || config.keep_first_token) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "[sampling] shifted_readout is true, but no position before the first token predicts it; set "
      "keep_first_token = true");
}

absl::Status CheckAnnealing(const AnyOrderConfig& config) {
  if (config.annealing == Annealing::kRandom) {
    return absl::InvalidArgumentError(
        WhyInexpressible("random_annealing", "[sampling] annealing = \"random\""));
  }
  if (config.annealing == Annealing::kBand || config.anneal_steps == AnyOrderConfig().anneal_steps)
    return absl::OkStatus();
  return InvalidArgument("[sampling] anneal_steps is ", config.anneal_steps,
                         " but annealing is \"none\"; leave out anneal_steps, or set annealing = "
                         "\"band\"");
}

}  // namespace

ObjectiveOrStatus MakeMaskedDiffusion(const ObjectiveSettings& settings) {
  RETURN_IF_ERROR(CheckDiffusion(settings.sampling.any_order));
  RETURN_IF_ERROR(CheckAnnealing(settings.sampling.any_order));
  return std::make_unique<MaskedDiffusion>(settings);
}

ObjectiveOrStatus MakeBlockDiffusion(const ObjectiveSettings& settings) {
  RETURN_IF_ERROR(CheckDiffusion(settings.sampling.any_order));
  RETURN_IF_ERROR(CheckResampling(settings.sampling.any_order));
  if (settings.sampling.any_order.loss_weight == LossWeight::kCart) {
    return absl::InvalidArgumentError(
        "[sampling] loss_weight is \"cart\", which weighs a token by unmasked ones on both sides; "
        "block_diffusion reads clean blocks on one side only: use masked_diffusion, or "
        "\"rate\"");
  }
  const int64_t block_len = settings.sampling.any_order.block_len;
  const int64_t seq_len = settings.sampling.seq_len;
  if (seq_len % block_len != 0)
    return InvalidArgument("[sampling] block_len=", block_len, " must divide seq_len=", seq_len);
  return std::make_unique<BlockDiffusion>(settings);
}

}  // namespace anyorder
