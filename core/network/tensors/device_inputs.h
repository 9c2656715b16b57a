// Small arrays that the host makes for each microbatch and that operations read: ids of tokens and
// rows, visibility, weights.
//
// Where the device's memory is the host's, operations read the host's arrays themselves. Elsewhere
// each array has a place of its own in one buffer, the same in every microbatch (a recorded graph
// of operations may be run again), and all go there in one copy.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"

#include "core/objective/batch.h"
#include "kernels/backend.h"
#include "kernels/visibility.h"

namespace anyorder {

// What `bytes` take in an allocation that several share.
constexpr int64_t AlignedBytes(int64_t bytes) { return (bytes + 63) / 64 * 64; }

class DeviceInputs {
 public:
  DeviceInputs() = default;
  DeviceInputs(const DeviceInputs&) = delete;
  DeviceInputs& operator=(const DeviceInputs&) = delete;

  // A place for `bytes`, aligned to 64; before Allocate.
  int64_t Reserve(int64_t bytes);
  // ResourceExhausted.
  absl::Status Allocate(kernels::Backend& backend);
  // Where operations after the next Send find the `bytes` at `host`, which must stay as they are
  // until those are done. At most as many as the place was reserved for.
  const void* Put(int64_t place, const void* host, int64_t bytes);
  // One copy of all that was put.
  void Send(StreamView stream);

  int64_t bytes() const { return storage_ == nullptr ? 0 : storage_->size_bytes(); }

 private:
  kernels::Backend* backend_ = nullptr;
  std::vector<int64_t> ends_;  // of the places, in order
  std::unique_ptr<kernels::Buffer> storage_;
  std::vector<char> staging_;  // what storage_ will hold; both empty where memory is the host's
};

// One such array. Moves, since each has its own place.
template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  DeviceArray(int64_t capacity, DeviceInputs& inputs)
      : inputs_(&inputs), place_(inputs.Reserve(capacity * static_cast<int64_t>(sizeof(T)))) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray(DeviceArray&&) noexcept = default;
  DeviceArray& operator=(DeviceArray&&) noexcept = default;

  // What data() points to after DeviceInputs::Send, until the next Set. Null if it is empty.
  void Set(const std::vector<T>& host) {
    const auto bytes = static_cast<int64_t>(host.size() * sizeof(T));
    data_ = bytes == 0 ? nullptr : static_cast<const T*>(inputs_->Put(place_, host.data(), bytes));
  }
  const T* data() const { return data_; }

 private:
  DeviceInputs* inputs_ = nullptr;
  int64_t place_ = 0;
  const T* data_ = nullptr;
};

// One that its owner computes, in `host`, before Set.
template <typename T>
struct ComputedArray {
  ComputedArray() = default;
  ComputedArray(int64_t size, DeviceInputs& inputs)
      : host(static_cast<size_t>(size)), device(size, inputs) {}

  void Set() { device.Set(host); }
  const T* data() const { return device.data(); }

  std::vector<T> host;
  DeviceArray<T> device;
};

// A microbatch's arrays (batch.h) as operations read them: in the device's memory.
struct DeviceBatch {
  DeviceBatch(const BatchShape& shape, DeviceInputs& inputs);

  // The arrays of `batch`, which is of that shape and outlives their use; valid after
  // DeviceInputs::Send.
  void Set(const Batch& batch);
  kernels::RowVisibility rows() const { return RowsOf(*this); }
  kernels::KeyVisibility keys() const { return KeysOf(*this); }

  DeviceArray<int32_t> tokens, row_ids, direction, global_slots;
  DeviceArray<int32_t> row_pos, row_lim, row_grp, row_doc, row_seg;
  DeviceArray<uint8_t> row_glob;
  DeviceArray<int32_t> key_pos, key_key, key_grp, key_doc, key_seg;
  DeviceArray<uint8_t> key_glob;
  DeviceArray<int32_t> labels, summary_labels, task_labels, task_starts, task_ends,
      task_classifiers;
  DeviceArray<float> weights, summary_weights, task_weights, task_scores;
  DeviceArray<uint8_t> task_valid;

 private:
  // Calls visit(array, batch's) for each.
  template <typename Visit>
  void VisitArrays(const Batch& batch, const Visit& visit);
};

}  // namespace anyorder
