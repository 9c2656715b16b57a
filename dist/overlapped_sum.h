// The sum of a step's gradients over ranks, made beside the backward pass of each rank's last
// microbatch: backward finishes the flat gradient from its end to its begin, and each bucket is on
// its way as soon as it is final.
//
// A bucket is cut into a slice for each rank, whatever the ranks own: a bucket's elements have few
// owners, and these would receive from all others while the rest of the machine waits. A rank
// finishes the tree for its slices (tree_exchange.h), and when all are done they move on to their
// owners. That costs 1 / (R - 1) more bytes than sending to owners at once, of which only these are
// not hidden. In fast mode buckets go to their owners at once: a reduction to one rank is no slower
// than one to all.
//
// Who adds what to what is as without overlap, and so are the bits in tree mode.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "dist/communicator.h"
#include "dist/device_transport.h"
#include "dist/parameter_partition.h"
#include "dist/tree_exchange.h"
#include "kernels/backend.h"

namespace anyorder::dist {

// `wished`, or more where so many ranks would cut buckets into slices below kMinSliceElements.
int64_t BucketBytes(int64_t wished, int world_size);

class OverlappedSum {
 public:
  struct Plan {
    int64_t num_leaves = 0;
    bool is_tree = true;          // else the transport's own order
    int64_t bucket_elements = 0;  // rounded up to whole cache lines
  };
  using Partial = TreeExchange::Partial;  // in fast mode its node has no meaning

  // All are borrowed but `plan`. REQUIRES: transport.is_asynchronous() and several ranks.
  // ResourceExhausted from the allocator.
  static absl::StatusOr<std::unique_ptr<OverlappedSum>> Create(Communicator& communicator,
                                                               kernels::Backend& backend,
                                                               DeviceTransport& transport,
                                                               const Partition& partition,
                                                               const Plan& plan);

  // A step's last leaf begins: `partials` are the sums of the earlier ones, from left to right, and
  // then the leaf itself, which is only read.
  void Begin(std::vector<Partial> partials);
  // Whether Begin was called and Finish was not.
  bool has_begun() const { return !partials_.empty(); }
  // The leaf's elements from `begin` on are final in the order of the main stream. Falls from call
  // to call.
  void Ready(int64_t begin);
  // Collective, after Ready(0): the sums of the owned range, there in the order of the main stream.
  void Finish(float* gradient_owned);

 private:
  OverlappedSum(Communicator& communicator, kernels::Backend& backend, DeviceTransport& transport,
                const Partition& partition, const Plan& plan);
  absl::Status Allocate();
  int64_t num_buckets() const;
  Range Bucket(int64_t index) const;
  Range Slice(int64_t bucket, int rank) const;
  // Where this rank's slice of the bucket is put when it is done.
  float* Finished(int64_t bucket) const;
  void SumInTree(int64_t bucket);
  std::vector<Partial> SumOwnLeaves(Range range);
  void SumFast(int64_t bucket);
  void MoveToOwners(float* gradient_owned);
  void Add(const float* left, const float* right, float* sum, int64_t count);
  void Copy(const float* from, float* to, int64_t count);

  Communicator& communicator_;
  kernels::Backend& backend_;
  DeviceTransport& transport_;
  const Partition& partition_;
  const Plan plan_;
  std::vector<int> place_of_rank_;  // its slice's in a bucket
  int64_t slice_elements_ = 0;      // of the largest slice

  std::unique_ptr<kernels::Stream> stream_;  // on which all of this runs
  std::unique_ptr<kernels::Event> ready_;    // on the main stream
  std::unique_ptr<kernels::Event> done_;     // on ours
  std::unique_ptr<kernels::Buffer> finished_;
  std::unique_ptr<TreeExchange> exchange_;  // null in fast mode
  std::vector<Partial> partials_;
  int64_t next_bucket_ = -1;  // its index; they go from last to first
};

}  // namespace anyorder::dist
