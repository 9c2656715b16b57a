#include "core/objective/causal_lm.h"

#include <string>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/objective/lane_frame.h"

namespace anyorder {
namespace {

class CausalLm final : public Objective {
 public:
  CausalLm(std::string name, const ModelConfig& model, const SamplingConfig& sampling)
      : name_(std::move(name)),
        initial_memory_(model.initial_memory),
        memory_rows_(model.mem_len),
        seq_len_(sampling.seq_len) {}

  std::string name() const override { return name_; }
  std::string quantity() const override { return "NLL of next tokens, read as in training"; }
  SampleKind sample_kind() const override { return SampleKind::kContiguous; }

  BatchShape Shape(int64_t batch_size) const override {
    BatchShape shape;
    shape.batch_size = batch_size;
    shape.content_rows = seq_len_;
    shape.memory_rows = memory_rows_;
    shape.targets = seq_len_;
    shape.advance = seq_len_;
    shape.min_distance = 0;  // nobody looks ahead
    shape.num_distances = seq_len_ + memory_rows_;
    shape.content_readout = true;
    return shape;
  }

  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    ANYORDER_CHECK(static_cast<int64_t>(sample.next_tokens.size()) == seq_len_)
        << "sample has " << sample.next_tokens.size() << " next tokens, expected " << seq_len_;
    FillLaneIdentity(sample, b, batch);
    FillMemoryKeys(sample, initial_memory_, b, batch);
    for (int64_t slot = 0; slot < seq_len_; ++slot) {
      SetContentSlot(b, slot, CausalSlot(sample.tokens[slot], slot), batch);
      SetReadout(b, slot, ContentRow(batch.shape, b) + slot, sample.next_tokens[slot], 1.0f, batch);
    }
  }

  LeftToRight left_to_right() const override { return LeftToRight::kContent; }
  FormOrStatus Generation(const GenerationTokens& tokens) const override {
    return MakeCausalGeneration(tokens, seq_len_ + memory_rows_);
  }

 private:
  std::string name_;
  InitialMemory initial_memory_;
  int64_t memory_rows_;
  int64_t seq_len_;
};

}  // namespace

ObjectiveOrStatus MakeCausalLm(const ModelConfig& model, const SamplingConfig& sampling) {
  return MakeCausalLmNamed("causal_lm", model, sampling);
}

ObjectiveOrStatus MakeCausalLmNamed(const std::string& name, const ModelConfig& model,
                                    const SamplingConfig& sampling) {
  ANYORDER_RETURN_IF_ERROR(sampling.Validate(SampleKind::kContiguous));
  ANYORDER_RETURN_IF_ERROR(CheckReadsNoPairs(name, model));
  return std::make_unique<CausalLm>(name, model, sampling);
}

}  // namespace anyorder
