// Sums the gradients of a step's microbatches over all ranks, each rank keeping the range it owns.
//
// Microbatch i of W (a power of two) is leaf i of a complete binary tree; the result is the tree's
// sum, left child plus right child, in fp32. A *node* (level, index) is the sum of leaves [index <<
// level, (index + 1) << level). In a round each rank adds 2^level leaves to a node; the ranks
// exchange these, in one level or two (tree_exchange.h), and add them, each in its slices, to what
// earlier rounds gave (LeafSchedule). Which additions are made does not depend on the number of
// ranks or rounds, only where, so every number of ranks gives the same bits.
//
// A gradient exists in windows only: backward finishes it from its end to its begin, and a window
// is added and sent as soon as it is final, then its memory serves another. Only a left child that
// waits for its sibling is whole: `level` buffers of N elements, none if ranks exchange every leaf.
// With an asynchronous transport the exchange overlaps with the backward pass.
//
// With one round a rank sends N * 4 * (R - 1) / R bytes, as a ring reduce-scatter does, and up to
// 1 / R of that again to move slices to their owners; in two levels most stay within the machine.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "core/base/memory_place.h"
#include "core/base/tensor.h"
#include "dist/communicator.h"
#include "dist/device_transport.h"
#include "dist/gradient_windows.h"
#include "dist/parameter_partition.h"
#include "dist/tree_exchange.h"
#include "kernels/backend.h"

namespace anyorder::dist {

struct GradientReducerOptions {
  int64_t num_elements = 0;  // N, size of the flat parameter space
  int64_t num_leaves = 1;  // W, microbatches per step over all ranks; a power of two, >= world_size
  int num_scalars = 0;  // doubles summed beside the gradient: loss, target weight, NaN count, ...
  int64_t leaves_per_exchange = 0;              // LeafSchedule
  std::vector<int64_t> window_begins = {0};     // of the windows that backward finishes, from 0 on
  MemoryPlace partials = MemoryPlace::kDevice;  // of the sums that wait between rounds
  // What travels at once. Smaller ones begin earlier and have more messages; they grow where
  // their slices would be shorter than min_slice_elements.
  int64_t bucket_bytes = int64_t{32} << 20;
  // Windows that would be cut into shorter slices travel with their neighbours, and what is shorter
  // still goes to fewer ranks.
  int64_t min_slice_elements = kMinSliceElements;
  // Called for each window of a leaf when it is final in the order of the main stream, before it is
  // added to anything. May be null.
  std::function<void(ConstTensorView window)> examine;
};

class GradientReducer {
 public:
  // Elements [range.begin, range.end) of a leaf's gradient: fp32 of device memory.
  struct Place {
    Range range;
    float* data = nullptr;
  };

  // Allocates all it will ever need, in the backend's memory: `level` buffers of N floats, those of
  // windows, N / R floats for each sum that waits between rounds (in host memory if
  // options.partials says so) and for the result, and what arrives of a bucket. One rank alone has
  // log2 W + 1 buffers of N and nothing else, unless sums wait in host memory. InvalidArgument if
  // the options do not fit each other or `communicator`; ResourceExhausted from the allocator.
  // Arguments are borrowed and must outlive the reducer.
  static absl::StatusOr<std::unique_ptr<GradientReducer>> Create(
      Communicator& communicator, kernels::Backend& backend, DeviceTransport& transport,
      const GradientReducerOptions& options);

  // The leaves this rank must add, in increasing order, in each step.
  const std::vector<int64_t>& leaves() const { return leaves_; }
  // As many leaves as the rank with the most has. Who has fewer may SkipLeaf.
  int64_t num_leaves() const { return schedule_.num_rounds() * schedule_.leaves_per_exchange(); }
  const LeafSchedule& schedule() const { return schedule_; }
  const Partition& partition() const { return partition_; }
  Range owned() const { return partition_.OwnedBy(communicator_.rank()); }

  // Where the gradient of the next leaf goes, from left to right; old contents undefined. Valid
  // until CommitLeaf; nowhere behind the rank's last leaf. A place is written between BeginWindow
  // and GradientReady.
  const std::vector<Place>& LeafPlaces();
  // What is written from now on in the order of the main stream may go to the place that has
  // element `element`. A place serves several windows: this lets the later one wait for the
  // exchange of the earlier.
  void BeginWindow(int64_t element);
  // The leaf's elements from `begin` on are final in the order of the main stream; `begin` falls
  // from call to call. Collective for the last leaf of a round: windows that are complete are
  // exchanged.
  void GradientReady(int64_t begin);
  // The places and scalars: [num_scalars] are leaf `leaf`. What GradientReady was not told of is
  // final now. REQUIRES: leaves come in order.
  void CommitLeaf(int64_t leaf, absl::Span<const double> scalars);
  // Behind the rank's last leaf: takes part in the exchange of the others' as CommitLeaf does.
  // ReduceScatter does that for what is left, so that it matters only to who talks in between.
  void SkipLeaf();

  // Collective, after the last leaf. Returns [owned().size()] fp32 of device memory, there in the
  // order of the main stream and until the next step's first leaf. scalars: [num_scalars], the sums
  // over all leaves by the same tree in double, on every rank. Then the next step may begin.
  TensorView ReduceScatter(absl::Span<double> scalars);

 private:
  GradientReducer(Communicator& communicator, kernels::Backend& backend, DeviceTransport& transport,
                  const GradientReducerOptions& options, const LeafSchedule& schedule);
  absl::Status AllocateBuffers();
  absl::StatusOr<float*> Allocate(MemoryPlace place, int64_t elements);
  // One rank has nobody to exchange with: a leaf is written where its sum will wait, if backward
  // can write there.
  bool is_alone() const {
    return communicator_.world_size() == 1 && options_.partials == MemoryPlace::kDevice;
  }
  bool is_asynchronous() const { return transport_.is_asynchronous() && !is_alone(); }
  StreamView stream() const { return is_alone() ? StreamView{} : transport_.messages(); }
  bool has_leaf() const { return next_ < leaves_.size(); }
  // The next leaf's number in its node.
  int64_t place_in_node() const {
    return static_cast<int64_t>(next_) % schedule_.leaves_per_exchange();
  }
  bool is_last_of_node() const { return place_in_node() + 1 == schedule_.leaves_per_exchange(); }
  float* DataOf(const GradientWindows::Window& window) const;
  void Finish(const GradientWindows::Window& window);
  // Adds the range of the leaf to the siblings on its left; returns the sum, from the range's
  // begin.
  float* JoinSiblings(Range range, float* leaf, StreamView stream);
  void AddRound(Range buckets, float* own_window);
  void EndLeaf();
  void MoveToOwners();
  void MoveToOwners(const GradientWindows::Window& window);
  void Copy(const float* from, float* to, int64_t count);

  Communicator& communicator_;
  kernels::Backend& backend_;
  const GradientReducerOptions options_;
  DeviceTransport& transport_;
  const Partition partition_;
  const LeafSchedule schedule_;
  const std::vector<int64_t> leaves_;
  const GradientWindows windows_;

  std::vector<std::unique_ptr<kernels::Buffer>> memory_;
  std::vector<float*> waiting_;  // [level], of N: sums at a level that wait for their siblings
  std::vector<float*> sums_;     // of layout_elements: the slices' sums of all rounds so far
  std::array<float*, GradientWindows::kBuffers> buffers_{};  // of windows; null if alone
  float* owned_sum_ = nullptr;                               // null if alone
  std::unique_ptr<TreeExchange> exchange_;

  // Of an asynchronous transport, on the stream of messages.
  std::unique_ptr<kernels::Event> done_;                                         // of a round
  std::array<std::unique_ptr<kernels::Event>, GradientWindows::kBuffers> read_;  // of a buffer

  std::vector<Place> places_;  // of the leaf that is written
  int64_t next_window_ = -1;   // behind the last window of the leaf that is not final; -1: no leaf
  size_t next_ = 0;            // in leaves_, or behind them
  int64_t round_ = 0;
  std::vector<double> scalars_;  // [leaves of this rank so far, num_scalars]
};

}  // namespace anyorder::dist
