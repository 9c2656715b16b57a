// Runs any slots of several lanes through a network, and keeps the keys and values of those that
// last: what all that writes and scores texts is made of.
//
// B lanes, K key slots a lane, V vocabulary. A lane's key slots hold its lasting slots in the order
// in which they came, then those that pass: keys that are kept are final, so that n steps of a text
// cost n rows, where computing it again for each costs n^2 / 2. Neither other lanes nor padding
// move a lane's slots: what it computes does not depend on its company, up to how the backend's
// products round for another number of rows (README.md).
//
// A pass computes hidden states only. Logits are computed when a row is read, as many rows at a
// time as fit into `logit_bytes`, since the logits of all rows can take gigabytes. Read rows in the
// order of lanes and of their reads: going back computes logits again.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/check.h"
#include "core/base/tensor.h"
#include "core/generate/inference_network.h"
#include "core/network/tensors/network_shape.h"
#include "core/network/tensors/step_context.h"
#include "core/objective/lane_frame.h"
#include "kernels/backend.h"

namespace anyorder {

// Products on the CPU are cut into blocks of so many rows (kernels/cpu/gemm.cc): whole blocks cost
// least, and round as those of a product of all rows do.
inline constexpr int64_t kProductRows = 256;

// FailedPrecondition unless all of `logits` [V], fp32 or fp64, are finite. They are not if training
// diverged or the checkpoint is damaged.
absl::Status CheckFinite(ConstTensorView logits);

// The memory of kept keys and values. H heads, D head size.
class KeyStorage {
 public:
  KeyStorage() = default;  // of no lanes
  // Keys and values [B, shape.batch.cached_keys, H*D] of each layer. ResourceExhausted.
  static absl::StatusOr<KeyStorage> Allocate(const NetworkShape& shape, kernels::Backend& backend);

  // What lanes [first, first + lanes) have; begins are 0.
  KeyCache Lanes(int64_t first, int64_t lanes) const;
  // Slots [begin, end) of lane `from` of `other`, which is of the same network, become those of
  // lane `to`. Lanes differ, or storages do.
  void Copy(const KeyStorage& other, int64_t from, int64_t to, int64_t begin, int64_t end,
            kernels::Backend& backend);

 private:
  std::unique_ptr<kernels::Buffer> buffer_;
  TensorView all_;     // [2 * layers, B*K*H*D and what aligns it] T: each layer's keys, its values
  int64_t slots_ = 0;  // K
  int64_t columns_ = 0;  // H*D
};

// What one lane runs.
struct LanePass {
  std::vector<Slot> lasting;  // seen by this pass and, from now on, by later ones
  std::vector<Slot> passing;  // seen by this pass alone
  std::vector<Slot> queries;  // nobody's keys; of networks with two streams
  // Rows whose logits are wanted, as indices into lasting, passing, queries, one behind the other.
  std::vector<int64_t> reads;
};

struct SlotNetworkOptions {
  // AddLanes' at first; a network of no lanes needs neither of the others.
  int64_t lanes = 1;
  // Lasting and passing slots that a lane is expected to have, and those that round its passes up.
  // A lane may have more: then there are larger allocations.
  int64_t key_slots = 0;
  int64_t span = 0;           // positions are below this
  bool looks_ahead = true;    // whether rows may see later positions
  int64_t context_slots = 0;  // GenerationForm::Traits
  // Whether keys are kept. If not, every pass computes all lasting slots again: the same network,
  // and the check on those keys.
  bool cached = true;
  int64_t logit_bytes = int64_t{64} << 20;  // of logits at a time; one row is always made
  // Asked before each pass, if set: what is not OK is the pass's error.
  std::function<absl::Status()> before_pass;
};

// As many of `lanes` as can be computed at once with activations of at most `bytes`; at least one.
// `most`: the rows, targets and distances that a pass has of a lane. In a network of 8 billion
// parameters a lane of 512 tokens takes more than 2 GiB.
int64_t LanesThatFit(const ModelConfig& model, int64_t vocab_size, const BatchShape& most,
                     int64_t lanes, int64_t bytes);

class SlotNetwork {
 public:
  // `weights` [layout] in the model's dtype are borrowed, as is the backend. OutOfRange if the
  // model has learned fewer positions; InvalidArgument if the backend does not compute in its
  // dtype; ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<SlotNetwork>> Create(const ModelConfig& model,
                                                             int64_t vocab_size,
                                                             ConstTensorView weights,
                                                             const SlotNetworkOptions& options,
                                                             kernels::Backend& backend);

  // Runs `passes`, those of lanes `first` and on; a lane may have no slots. Other lanes must not
  // have changed places with them (Reorder). Row has their logits until the next Run, AddLanes or
  // RemoveLane.
  // Errors: before_pass's; ResourceExhausted.
  absl::Status Run(const std::vector<LanePass>& passes, int64_t first = 0);
  // The logits [V] G of read `read` of lane `lane`, of an adaptive softmax log-probabilities, in
  // the host's memory until another row is read. CheckFinite's error.
  absl::StatusOr<ConstTensorView> Row(int64_t lane, int64_t read);
  // Row, in fp64.
  absl::Status ReadRow(int64_t lane, int64_t read, std::vector<double>* logits);
  // Lane b's lasting slots become those of lane parents[b]. Keys that a lane has already, since it
  // took them over earlier, are not copied again.
  void Reorder(const std::vector<int32_t>& parents);
  // Forgets the lane's lasting slots from `count` on.
  void Keep(int64_t lane, int64_t count) {
    ANYORDER_CHECK(count >= 0 && count <= kept(lane)) << count << " of " << kept(lane) << " slots";
    lasting(lane).resize(static_cast<size_t>(count));
  }
  // Nobody sees the lane's first `count` lasting slots any more.
  void Hide(int64_t lane, int64_t count) {
    ANYORDER_CHECK(count >= 0 && count <= kept(lane)) << count << " of " << kept(lane) << " slots";
    for (int64_t i = 0; i < count; ++i) lasting(lane)[i].slot = PadSlot(0);
  }
  // Adds `lanes` without slots behind the others. All have room for `key_slots` and positions below
  // `span` from then on. OutOfRange, ResourceExhausted: nothing has changed.
  absl::Status AddLanes(int64_t lanes, int64_t key_slots, int64_t span);
  // Those behind it move up.
  void RemoveLane(int64_t lane);

  int64_t vocab_size() const { return vocab_size_; }
  int64_t lanes() const { return static_cast<int64_t>(place_.size()); }
  int64_t kept(int64_t lane) const { return static_cast<int64_t>(lasting(lane).size()); }
  // Passes so far, and rows that they computed, padding included.
  int64_t passes() const { return passes_; }
  int64_t rows() const { return rows_; }

 private:
  struct Program {
    std::unique_ptr<InferenceNetwork> network;
    std::unique_ptr<Batch> batch;
    KeyCache cache;
    int64_t first = 0;  // the lane that the batch begins with
    bool is_read = false;
  };
  struct LastingSlot {
    Slot slot;    // a pad, if it is hidden
    int64_t key;  // equal ones: the same key and value
  };

  SlotNetwork(const ModelConfig& model, int64_t vocab_size, ConstTensorView weights,
              const SlotNetworkOptions& options, kernels::Backend& backend);
  absl::Status MakeRoom(int64_t first, int64_t count, int64_t content_rows);
  // Keys in memory for so many lanes and slots.
  absl::Status MoveKeys(int64_t lanes, int64_t key_slots);
  absl::StatusOr<Program*> Find(const std::vector<LanePass>& passes, int64_t first);
  // Rows of the readout whose logits are made at a time.
  int64_t LogitRows(const BatchShape& shape) const;
  absl::Status AllocateLogits(const InferenceNetwork& network);
  std::vector<LastingSlot>& lasting(int64_t lane) { return lasting_[place_[lane]]; }
  const std::vector<LastingSlot>& lasting(int64_t lane) const { return lasting_[place_[lane]]; }
  void FillLane(int64_t lane, const LanePass& pass, Program& program) const;
  void CopyPlace(int64_t from, int64_t to);

  ModelConfig model_;
  int64_t vocab_size_;
  ConstTensorView weights_;
  SlotNetworkOptions options_;  // lanes, key slots and span: what there is room for
  kernels::Backend& backend_;
  std::vector<kernels::Band> bands_;  // of context_slots, or none
  KeyStorage keys_;                   // of options_.lanes lanes at most
  std::vector<int64_t> place_;  // [B] of each lane in batches, `keys_` and `lasting_`: below B
  std::vector<std::vector<LastingSlot>> lasting_;
  int64_t next_key_ = 0;  // a LastingSlot::key that no slot has had
  // By lanes, the first of them, and rows: content, queries, reads.
  std::map<std::vector<int64_t>, Program> programs_;
  int64_t passes_ = 0;
  int64_t rows_ = 0;
  Program* last_run_ = nullptr;
  std::unique_ptr<kernels::Buffer> logits_storage_;
  TensorView logits_;          // [LogitRows, V] G, of the last run's readout
  int64_t first_logits_ = -1;  // the row of the readout that they begin with; -1: not there yet
};

}  // namespace anyorder
