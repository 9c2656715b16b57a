// The weights in a checkpoint as one flat space in fp32: as they were saved or, of a run with
// adapters (core/config/lora_config.h), merged with those that the adapters were trained beside:
//   W + (alpha / rank) B A
// so that everything that does not train knows no adapters.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "ckpt/reader.h"
#include "core/base/file_system.h"
#include "core/network/tensors/parameters.h"
#include "core/network/weight_transfer.h"
#include "core/train/run/run_config.h"
#include "core/train/state/resume.h"

namespace anyorder {

// Which parameters the weights in a checkpoint are: the table that SerializeMetadata writes. It is
// read, not computed, because it is another model's or may stem from another version of this
// program.

// The checkpoint's tensor [parameters] of all trained weights in fp32.
inline constexpr char kMasterTensor[] = "master";
// The tensor of their average, in checkpoints of runs that keep one (optimizer.ema_decay).
inline constexpr char kAverageTensor[] = "ema";

// Which of a checkpoint's weights: the average where there is one, as models that are trained with
// one are released and evaluated, or those that the next step would update.
enum class WeightChoice { kAverage, kRaw };

bool HasAverage(const ckpt::Checkpoint& checkpoint);

// Names, shapes and offsets, one behind the other and together the whole of kMasterTensor; `init`
// and `decays` are not saved. FailedPrecondition, with the checkpoint's directory, for any other
// table.
absl::StatusOr<std::vector<ParameterInfo>> ReadSavedParameters(const ckpt::Checkpoint& checkpoint);

// The tokens that a network with these parameters embeds; 0 if it has no table of tokens.
int64_t VocabSizeOf(const std::vector<ParameterInfo>& parameters);

// What names the checkpoint.
inline BaseCheckpoint BaseOf(const ckpt::Checkpoint& checkpoint) {
  return {checkpoint.directory(), checkpoint.run_id(), checkpoint.step(), checkpoint.generation()};
}
// The checkpoint that adapters were trained beside: the one that `base` names, at `init_from`,
// which may have been moved, or where it was. FailedPrecondition with what to do if neither is it.
absl::StatusOr<ckpt::Checkpoint> OpenBase(const BaseCheckpoint& base, const std::string& init_from,
                                          FileSystem* fs = FileSystem::Posix());

// The places of the frozen weights, or of the trained ones, in a plan for the whole network.
TransferPlan PlanOfPart(const TransferPlan& whole, const ParameterLayout& network,
                        const std::vector<ParameterInfo>& part);

class WeightReader {
 public:
  // `checkpoint` is borrowed. Reads no payload. `init_from`: where the weights that adapters belong
  // to are now (train.init_from of the run); "": where they were. Errors: those of
  // ReadSavedParameters and OpenBase.
  static absl::StatusOr<WeightReader> Open(const ckpt::Checkpoint& checkpoint, WeightChoice choice,
                                           const std::string& init_from = "",
                                           FileSystem* fs = FileSystem::Posix());

  // What is saved alone: with adapters, these and all else that is trained; without parameters().
  static WeightReader OfTrained(const ckpt::Checkpoint& checkpoint, WeightChoice choice) {
    const bool is_average = choice == WeightChoice::kAverage && HasAverage(checkpoint);
    return WeightReader(checkpoint, is_average ? kAverageTensor : kMasterTensor);
  }

  // The parameters of the whole network, in its order.
  const std::vector<ParameterInfo>& parameters() const { return parameters_; }
  int64_t num_elements() const { return parameters_.empty() ? 0 : parameters_.back().end(); }
  bool has_adapters() const { return base_ != nullptr; }
  // Elements [begin, end). Errors: those of Checkpoint::Read.
  absl::Status Read(int64_t begin, int64_t end, float* out) const;

 private:
  // What a run with adapters adds to, or has instead of, the weights of its base.
  struct Adapter {
    ParameterInfo a, b;  // in the checkpoint
    int64_t begin = 0;   // of the projection, in parameters_
    int64_t end = 0;
    bool is_input_first = false;
  };
  struct Base {
    ckpt::Checkpoint checkpoint;
    std::unique_ptr<WeightReader> weights;
  };

  WeightReader(const ckpt::Checkpoint& checkpoint, const char* tensor)
      : checkpoint_(&checkpoint), tensor_(tensor) {}
  absl::Status OpenAdapters(const TrainMetadata& saved, const std::string& init_from,
                            FileSystem* fs);
  absl::Status AddAdapter(const Adapter& adapter, int64_t begin, int64_t end, float* out) const;

  const ckpt::Checkpoint* checkpoint_;
  const char* tensor_;
  std::vector<ParameterInfo> parameters_;
  // With adapters:
  std::unique_ptr<Base> base_;
  TransferPlan from_base_;
  TransferPlan trained_;  // whole tensors that are in the checkpoint
  std::vector<Adapter> adapters_;
  float scale_ = 1;
};

}  // namespace anyorder
