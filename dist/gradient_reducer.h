// Sums the gradients of a step's microbatches over all ranks, each rank keeping the range it owns.
//
// Microbatch i of W (a power of two) is leaf i of a complete binary tree; the result is the tree's
// sum, left child plus right child, in fp32. A *node* (level, index) is the sum of leaves [index <<
// level, (index + 1) << level). A rank adds its leaves up to the largest nodes that lie inside its
// leaf range (one if W / world_size is a power of two, at most 2 log2 W otherwise); the ranks
// exchange these, in one level or two (tree_exchange.h), and finish the tree, each for its own
// range. Which additions are made does not depend on the number of ranks, only where, so every
// number of ranks gives the same bits.
//
// With one node per rank a rank sends N * 4 * (R - 1) / R bytes, as a ring reduce-scatter does; in
// two levels most of them stay within the machine.
//
// Where the transport is asynchronous the sum runs beside the backward pass of the rank's last
// microbatch (overlapped_sum.h).

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "core/base/tensor.h"
#include "dist/communicator.h"
#include "dist/device_transport.h"
#include "dist/overlapped_sum.h"
#include "dist/parameter_partition.h"
#include "dist/tree_exchange.h"
#include "kernels/backend.h"

namespace anyorder::dist {

enum class Reduction {
  kTree,  // the same bits for any number of ranks
  kFast,  // a running sum per rank, then the library's order: fewer buffers, bits depend on the
          // ranks
};
constexpr auto SpellingsOf(Reduction) { return std::array{"tree", "fast"}; }

struct GradientReducerOptions {
  int64_t num_elements = 0;  // N, size of the flat parameter space
  int64_t num_leaves = 1;  // W, microbatches per step over all ranks; a power of two, >= world_size
  int num_scalars = 0;  // doubles summed beside the gradient: loss, target weight, NaN count, ...
  Reduction reduction = Reduction::kTree;
  // What gradients travel by; borrowed. Null: the communicator (MakeCommunicatorTransport).
  DeviceTransport* transport = nullptr;
  // What an asynchronous transport sends of the last leaf at once. Smaller ones begin earlier and
  // have more messages (BucketBytes).
  int64_t bucket_bytes = int64_t{32} << 20;
};

class GradientReducer {
 public:
  // Allocates all it will ever need, in the backend's memory: in tree mode a buffer of N floats per
  // pending node, at most log2(W / world_size) + 2 of them where ranks divide W into powers of two,
  // plus at most 64 MiB for what arrives (more beyond 256 ranks).
  // InvalidArgument if the options do not fit each other or `communicator`; ResourceExhausted from
  // the allocator. Arguments are borrowed and must outlive the reducer.
  static absl::StatusOr<std::unique_ptr<GradientReducer>> Create(
      Communicator& communicator, kernels::Backend& backend, const GradientReducerOptions& options);

  // The leaves this rank must add, in increasing order, in each step.
  Range leaves() const { return leaves_; }
  const Partition& partition() const { return partition_; }
  Range owned() const { return partition_.OwnedBy(communicator_.rank()); }

  // Where the gradient of the next leaf goes: [N] of device memory, 64-byte aligned, old contents
  // undefined. Valid until CommitLeaf, which takes it over.
  float* LeafBuffer();
  // The leaf buffer's elements from `begin` on are final in the order of the main stream; `begin`
  // falls from call to call. Optional, and without effect unless the leaf is this rank's last and
  // the transport asynchronous: over a communicator an exchange keeps the host waiting, so that
  // there is nothing to be gained by one before the leaf is complete.
  void GradientReady(int64_t begin);
  // The leaf buffer and scalars: [num_scalars] are leaf `leaf`. REQUIRES: leaves come in order.
  void CommitLeaf(int64_t leaf, absl::Span<const double> scalars);

  // Collective, after the last leaf. gradient_owned: [owned().size()] fp32 of device memory, there
  // in the order of the stream; scalars: [num_scalars], the sums over all leaves by the same tree
  // in double, in both modes, on every rank. Then the next step may begin.
  void ReduceScatter(TensorView gradient_owned, absl::Span<double> scalars);

  // " in one level", " in two levels (16 nodes)"
  std::string exchange_name() const;

 private:
  struct Partial {
    TreeNode node;
    float* gradient = nullptr;  // null in fast mode
    std::vector<double> scalars;
  };

  GradientReducer(Communicator& communicator, kernels::Backend& backend,
                  const GradientReducerOptions& options);
  absl::Status AllocateBuffers();
  absl::Status AllocateOverlap();
  // left += right, unless the overlapped sum does that; takes the memory of `right` back.
  void Join(float* left, float* right);
  // Own gradients at the tree's nodes, or the running sum.
  std::vector<TreeExchange::Partial> Gradients() const;
  void FinishTree(float* gradient_owned);
  void FinishScalars(absl::Span<double> scalars);

  Communicator& communicator_;
  kernels::Backend& backend_;
  const GradientReducerOptions options_;
  TransportChoice transport_;
  const Partition partition_;
  const Range leaves_;
  const int64_t window_elements_;  // of each owner's range, exchanged at a time

  std::vector<std::unique_ptr<kernels::Buffer>> memory_;
  std::vector<float*> free_;                // buffers of N floats nobody uses
  std::unique_ptr<TreeExchange> exchange_;  // null: fast mode, or the overlapped sum has its own
  std::unique_ptr<OverlappedSum> overlap_;  // null: one rank, or a transport that waits
  float* leaf_buffer_ = nullptr;            // handed to the model, not committed yet
  float* running_sum_ = nullptr;            // fast mode
  std::vector<Partial> partials_;           // left to right, no two of them siblings
  int64_t next_leaf_ = 0;
};

}  // namespace anyorder::dist
