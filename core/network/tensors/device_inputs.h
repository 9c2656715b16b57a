// Small arrays that the host makes for each microbatch and that operations read: ids of tokens and
// rows, visibility, weights.
//
// Where the device's memory is the host's, operations read the host's arrays themselves. Elsewhere
// each array has a place of its own in one buffer, the same in every microbatch (a recorded graph
// of operations may be run again), and all go there in one copy.

#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/status/status.h"

#include "core/base/check.h"
#include "core/base/status.h"
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
  int64_t Reserve(int64_t bytes) {
    ANYORDER_CHECK(backend_ == nullptr && bytes >= 0) << "a place for " << bytes << " bytes";
    const int64_t begin = ends_.empty() ? 0 : ends_.back();
    ends_.push_back(begin + AlignedBytes(bytes));
    return static_cast<int64_t>(ends_.size()) - 1;
  }
  // ResourceExhausted.
  absl::Status Allocate(kernels::Backend& backend) {
    backend_ = &backend;
    if (backend.is_host_memory() || ends_.empty() || ends_.back() == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(storage_, backend.Allocate(ends_.back()));
    staging_.resize(static_cast<size_t>(ends_.back()));
    return absl::OkStatus();
  }
  // Where operations after the next Send find the `bytes` at `host`, which must stay as they are
  // until those are done. At most as many as the place was reserved for.
  const void* Put(int64_t place, const void* host, int64_t bytes) {
    if (backend_->is_host_memory()) return host;
    const int64_t begin = place == 0 ? 0 : ends_[place - 1];
    ANYORDER_CHECK(bytes <= ends_[place] - begin)
        << bytes << " bytes for a place of " << ends_[place] - begin;
    std::memcpy(staging_.data() + begin, host, static_cast<size_t>(bytes));
    return static_cast<const char*>(storage_->data()) + begin;
  }
  // One copy of all that was put.
  void Send(StreamView stream) {
    if (staging_.empty()) return;
    backend_->CopyToDevice(staging_.data(), storage_->data(), static_cast<int64_t>(staging_.size()),
                           stream);
  }

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
  DeviceBatch(const BatchShape& shape, DeviceInputs& inputs) {
    VisitArrays(Batch(shape), [&inputs](auto& array, const auto& values) {
      array = {static_cast<int64_t>(values.size()), inputs};
    });
  }

  // The arrays of `batch`, which is of that shape and outlives their use; valid after
  // DeviceInputs::Send.
  void Set(const Batch& batch) {
    VisitArrays(batch, [](auto& array, const auto& values) { array.Set(values); });
  }
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
  void VisitArrays(const Batch& batch, const auto& visit) {
    visit(tokens, batch.tokens);
    visit(row_ids, batch.row_ids);
    visit(direction, batch.direction);
    visit(global_slots, batch.global_slots);
    visit(row_pos, batch.row_pos);
    visit(row_lim, batch.row_lim);
    visit(row_grp, batch.row_grp);
    visit(row_doc, batch.row_doc);
    visit(row_seg, batch.row_seg);
    visit(row_glob, batch.row_glob);
    visit(key_pos, batch.key_pos);
    visit(key_key, batch.key_key);
    visit(key_grp, batch.key_grp);
    visit(key_doc, batch.key_doc);
    visit(key_seg, batch.key_seg);
    visit(key_glob, batch.key_glob);
    visit(labels, batch.labels);
    visit(weights, batch.weights);
    visit(summary_labels, batch.summary_labels);
    visit(summary_weights, batch.summary_weights);
    visit(task_labels, batch.task_labels);
    visit(task_weights, batch.task_weights);
    visit(task_scores, batch.task_scores);
    visit(task_valid, batch.task_valid);
    visit(task_starts, batch.task_starts);
    visit(task_ends, batch.task_ends);
    visit(task_classifiers, batch.task_classifiers);
  }
};

}  // namespace anyorder
