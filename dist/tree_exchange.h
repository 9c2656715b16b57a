// The part of the gradients' sum in which ranks talk. Each rank has the sums of its own leaves, at
// the maximal tree nodes of its leaf range; each gets the tree's sum of a slice of the elements.
//
// In one level a rank sends each other rank that rank's slice of its nodes. In two levels
// (Communicator::nodes) the ranks of a machine first add up among themselves, a part of the slices
// each, as far as the tree joins their leaves: to one tree node if the machine's leaves are an
// aligned power of two, to a few otherwise. These alone travel on, so that 8 GPUs send an eighth of
// the bytes to other machines, and a rank has peers in its machine and one in each other machine.
// One level is two levels with a rank on each machine.
//
// Which additions are made is the tree's business alone, and so the bits do not depend on levels.
// (Here a node is the tree's, and a group is the ranks of a machine.)

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "core/base/stream.h"
#include "dist/communicator.h"
#include "dist/device_transport.h"
#include "dist/parameter_partition.h"
#include "kernels/backend.h"

namespace anyorder::dist {

// Slices are at least this long where memory allows: 256 KiB, of which a message's latency is a
// small part.
inline constexpr int64_t kMinSliceElements = int64_t{1} << 16;

class TreeExchange {
 public:
  // A sum of leaves of this rank.
  struct Partial {
    TreeNode node;
    float* gradient = nullptr;  // [N]
  };

  // The backend's memory for what arrives: up to `slice_elements` of each node of the others, of a
  // rank of its machine for each slice that it adds up. Arguments are borrowed. ResourceExhausted
  // from the allocator.
  static absl::StatusOr<std::unique_ptr<TreeExchange>> Create(Communicator& communicator,
                                                              kernels::Backend& backend,
                                                              DeviceTransport& transport,
                                                              int64_t num_leaves,
                                                              int64_t slice_elements);

  // Blocks of `slice_elements` that Create allocates at most, the same on all ranks: about their
  // number.
  static int64_t NumBlocks(const RankGroups& groups, int64_t num_leaves);

  // Collective, in the order of `stream`. own: the rank's maximal nodes, from left to right, which
  // stay as they are. slices: [world_size], of at most `slice_elements`, the same on all ranks;
  // some may be empty. out: [slices[rank].size()].
  void Sum(absl::Span<const Partial> own, absl::Span<const Range> slices, float* out,
           StreamView stream);

 private:
  // The sum at a node of some elements.
  struct Item {
    TreeNode node;
    const float* value;
    float* writable;  // the same; null: one of the rank's own, which must stay
  };
  // What this rank's group has of a range: its maximal nodes.
  struct GroupSum {
    Range range;
    std::vector<Item> nodes;
  };

  TreeExchange(Communicator& communicator, kernels::Backend& backend, DeviceTransport& transport,
               int64_t num_leaves, int64_t slice_elements);
  absl::Status Allocate();
  // The slices that `rank` adds up for its group, those that touch as one.
  std::vector<Range> DelegatedTo(int rank, absl::Span<const Range> slices) const;
  std::vector<GroupSum> SumInGroup(absl::Span<const Partial> own, absl::Span<const Range> slices,
                                   StreamView stream);
  // The slice's nodes of all groups, from left to right.
  std::vector<Item> ExchangeGroupSums(const std::vector<GroupSum>& sums,
                                      absl::Span<const Range> slices, StreamView stream);
  // The tree's nodes above `items`; the sum at the root goes to `out`.
  std::vector<Item> JoinAll(const std::vector<Item>& items, int64_t count, float* out,
                            StreamView stream);

  Communicator& communicator_;
  kernels::Backend& backend_;
  DeviceTransport& transport_;
  const RankGroups& groups_;
  const int64_t num_leaves_;
  const int64_t slice_elements_;
  std::vector<std::vector<TreeNode>> nodes_of_rank_;   // [world_size]
  std::vector<std::vector<TreeNode>> nodes_of_group_;  // [groups]
  std::unique_ptr<kernels::Buffer> from_group_;
  std::unique_ptr<kernels::Buffer> from_others_;
};

// Collective. The sums of the scalars of all leaves by the same tree, on every rank: up a binary
// tree of ranks, on which each hands on what it could not join, and down again. nodes: the caller's
// maximal nodes; scalars: [nodes, totals.size()].
void SumScalars(Communicator& communicator, int64_t num_leaves, absl::Span<const TreeNode> nodes,
                absl::Span<const double> scalars, absl::Span<double> totals);

}  // namespace anyorder::dist
