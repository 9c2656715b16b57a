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

#include "kernels/backend.h"

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

}  // namespace anyorder
