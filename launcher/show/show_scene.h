// What there is to draw of one lane at one step: its slots, and which rows see which keys. Both
// pictures are made from this.
//
// The text sample is drawn by the trainer's Sampler, the lane is built by the objective itself, and
// every cell is asked from kernels::IsVisible, the definition that the attention kernels are tested
// against: no rule is written here a second time.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/objective/batch.h"
#include "core/objective/text_sample.h"
#include "core/train/run/run_config.h"
#include "launcher/show/show.h"

namespace anyorder::launcher {

enum class SlotKind { kMemory, kContent, kQuery };

struct ShownSlot {
  SlotKind kind = SlotKind::kContent;
  int64_t index = 0;  // row of the batch, or key
  int32_t pos = 0;
  int32_t rank = 0;   // keys: key rank, or kKeyNever; rows: the largest key rank that the row sees
  std::string token;  // "" for memory
  std::optional<std::string> label;  // rows that are read out: what they are to predict
};

// Content slots [begin, end): "reuse", "A", "SEP", ...
struct ShownSection {
  int64_t begin = 0;
  int64_t end = 0;
  std::string name;
};

struct Scene {
  explicit Scene(const BatchShape& shape) : batch(shape) {}

  Batch batch;  // one lane
  TextSample sample;
  std::string objective;
  kernels::Band band;  // of the layer and head that are shown
  std::string window;  // "window 4:4 of layer 0, head 0"; "" where nothing is limited
  uint64_t seed = 0;
  std::vector<ShownSlot> keys;      // memory, content slots, query slots if they are keys
  std::vector<ShownSlot> content;   // rows
  std::vector<ShownSlot> queries;   // rows, without those that hold no target in this sample
  std::vector<ShownSection> parts;  // of the content slots; empty if the text is one piece
  int64_t num_unused_queries = 0;
  int64_t num_targets = 0;

  bool Sees(const ShownSlot& row, const ShownSlot& key) const;
  // A key's rank; "" where there is none: memory, and what is seen by its group alone.
  static std::string RankText(const ShownSlot& key);
  // "rank 1 <= 2": which clause of the predicate lets `row` see `key`. REQUIRES Sees(row, key).
  std::string Why(const ShownSlot& row, const ShownSlot& key) const;
  // Whether keys[k] is the slot that `row` stands at.
  bool IsSelf(const ShownSlot& row, const ShownSlot& key) const;
  // Whether the first part is what the next step remembers, so that the text has halves.
  bool HasReusePart() const { return parts.size() > 1 && parts[0].name == "reuse"; }
  // Whether a thin line goes before keys[k]: where memory ends and where the second half begins.
  bool StartsBlock(size_t k) const;
  // Slot numbers in the order of their ranks, "0 2 3 > 1": equal ranks side by side, then `arrow`.
  // "" for left to right.
  std::string Order(const std::string& arrow) const;
  // "permutation_lm", then its sizes, then where the sample comes from.
  std::string Title() const;
  std::string Subtitle() const;
};

// Errors: those of the objective and of the sampler; InvalidArgument for a lane that does not
// exist.
absl::StatusOr<Scene> MakeScene(const RunConfig& config, const ShowOptions& options);

}  // namespace anyorder::launcher
