#include "core/objective/causal_lm.h"

#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/objective/lane_frame.h"

namespace anyorder {
namespace {

class CausalLm final : public Objective {
 public:
  explicit CausalLm(const ObjectiveSettings& settings)
      : Objective(settings.traits),
        initial_memory_(settings.model.initial_memory),
        memory_rows_(settings.model.mem_len),
        seq_len_(settings.sampling.seq_len),
        hide_documents_(settings.sampling.hide_documents) {}

  std::string quantity() const override { return "NLL of next tokens, read as in training"; }
  std::string evaluation_note() const override { return HiddenDocumentsNote(hide_documents_); }

  BatchShape Shape(int64_t batch_size) const override {
    return {.batch_size = batch_size,
            .content_rows = seq_len_,
            .memory_rows = memory_rows_,
            .targets = seq_len_,
            .advance = seq_len_,
            .min_distance = 0,  // nobody looks ahead
            .num_distances = seq_len_ + memory_rows_,
            .content_readout = true};
  }

  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    ANYORDER_CHECK(static_cast<int64_t>(sample.next_tokens.size()) == seq_len_)
        << "sample has " << sample.next_tokens.size() << " next tokens, expected " << seq_len_;
    FillLaneIdentity(sample, b, batch);
    FillMemoryKeys(sample, initial_memory_, b, batch);
    const std::vector<int32_t> documents =
        DocumentsOf(sample, hide_documents_, EodPlace::kBeginsNext);
    for (int64_t slot = 0; slot < seq_len_; ++slot) {
      Slot value = CausalSlot(sample.tokens[slot], slot);
      value.doc = documents[slot];
      SetContentSlot(b, slot, value, batch);
      SetReadout(b, slot, ContentRow(batch.shape, b) + slot, sample.next_tokens[slot], 1.0f, batch);
    }
  }

  FormOrStatus Generation(const GenerationTokens& tokens) const override {
    return MakeCausalGeneration(tokens, seq_len_ + memory_rows_);
  }

  absl::StatusOr<CanvasForm> Canvas(const GenerationTokens& tokens) const override {
    return MakeCanvas(CanvasFamily::kCausal, seq_len_ + memory_rows_, tokens);
  }

 private:
  InitialMemory initial_memory_;
  int64_t memory_rows_;
  int64_t seq_len_;
  bool hide_documents_;
};

}  // namespace

ObjectiveOrStatus MakeCausalLm(const ObjectiveSettings& settings) {
  if (settings.sampling.hide_documents && settings.model.mem_len > 0) {
    return InvalidArgument("[sampling] hide_documents is true but model.mem_len is ",
                           settings.model.mem_len,
                           ": memory holds other documents; set model.mem_len = 0");
  }
  return std::make_unique<CausalLm>(settings);
}

}  // namespace anyorder
