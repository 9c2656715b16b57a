#include "dist/overlapped_sum.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/base/tensor.h"

namespace anyorder::dist {
namespace {

// Slices begin where vectors and messages like it.
constexpr int64_t kUnit = 64;

int64_t NumUnits(int64_t elements) { return (elements + kUnit - 1) / kUnit; }

Range Intersection(Range a, Range b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// Numbers slices so that those which one rank adds up for its node touch each other: by the ranks'
// numbers within their nodes.
std::vector<int> PlacesOfRanks(const RankGroups& groups) {
  std::vector<std::pair<int64_t, int>> order;
  for (int rank = 0; rank < groups.world_size(); ++rank)
    order.emplace_back(rank - groups[groups.GroupOf(rank)].begin, rank);
  if (groups.has_two_levels()) std::stable_sort(order.begin(), order.end());
  std::vector<int> places(order.size());
  for (size_t place = 0; place < order.size(); ++place)
    places[order[place].second] = static_cast<int>(place);
  return places;
}

}  // namespace

int64_t BucketBytes(int64_t wished, int world_size) {
  constexpr int64_t kSliceBytes = kMinSliceElements * static_cast<int64_t>(sizeof(float));
  return std::max(wished, world_size * kSliceBytes);
}

absl::StatusOr<std::unique_ptr<OverlappedSum>> OverlappedSum::Create(Communicator& communicator,
                                                                     kernels::Backend& backend,
                                                                     DeviceTransport& transport,
                                                                     const Partition& partition,
                                                                     const Plan& plan) {
  ANYORDER_CHECK(transport.is_asynchronous() && communicator.world_size() > 1);
  auto sum = std::unique_ptr<OverlappedSum>(
      new OverlappedSum(communicator, backend, transport, partition, plan));
  RETURN_IF_ERROR(sum->Allocate());
  return sum;
}

OverlappedSum::OverlappedSum(Communicator& communicator, kernels::Backend& backend,
                             DeviceTransport& transport, const Partition& partition,
                             const Plan& plan)
    : communicator_(communicator),
      backend_(backend),
      transport_(transport),
      partition_(partition),
      plan_([&plan, &partition] {
        Plan whole = plan;
        const int64_t size = std::clamp<int64_t>(plan.bucket_elements, 1, partition.num_elements());
        whole.bucket_elements = NumUnits(size) * kUnit;
        return whole;
      }()),
      place_of_rank_(PlacesOfRanks(communicator.nodes())) {
  const int64_t ranks = communicator.world_size();
  slice_elements_ = (NumUnits(plan_.bucket_elements) + ranks - 1) / ranks * kUnit;
}

absl::Status OverlappedSum::Allocate() {
  ASSIGN_OR_RETURN(stream_, backend_.MakeStream(kernels::StreamPurpose::kMessages));
  ASSIGN_OR_RETURN(ready_, backend_.MakeEvent());
  ASSIGN_OR_RETURN(done_, backend_.MakeEvent());
  const auto allocate = [this](int64_t elements) {
    return backend_.Allocate(std::max<int64_t>(1, elements) * static_cast<int64_t>(sizeof(float)));
  };
  if (!plan_.is_tree) {
    ASSIGN_OR_RETURN(finished_, allocate(partition_.OwnedBy(communicator_.rank()).size()));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(finished_, allocate(num_buckets() * slice_elements_));
  ASSIGN_OR_RETURN(exchange_, TreeExchange::Create(communicator_, backend_, transport_,
                                                   plan_.num_leaves, slice_elements_));
  return absl::OkStatus();
}

int64_t OverlappedSum::num_buckets() const {
  return (partition_.num_elements() + plan_.bucket_elements - 1) / plan_.bucket_elements;
}

Range OverlappedSum::Bucket(int64_t index) const {
  const int64_t begin = index * plan_.bucket_elements;
  return {begin, std::min(begin + plan_.bucket_elements, partition_.num_elements())};
}

Range OverlappedSum::Slice(int64_t bucket, int rank) const {
  const Range range = Bucket(bucket);
  const Range units =
      EvenPart(NumUnits(range.size()), communicator_.world_size(), place_of_rank_[rank]);
  return {std::min(range.begin + units.begin * kUnit, range.end),
          std::min(range.begin + units.end * kUnit, range.end)};
}

float* OverlappedSum::Finished(int64_t bucket) const {
  return static_cast<float*>(finished_->data()) + bucket * slice_elements_;
}

void OverlappedSum::Begin(std::vector<Partial> partials) {
  ANYORDER_CHECK(next_bucket_ == -1) << "the step before is not finished";
  partials_ = std::move(partials);
  next_bucket_ = num_buckets() - 1;
}

void OverlappedSum::Ready(int64_t begin) {
  if (next_bucket_ < 0 || Bucket(next_bucket_).begin < begin) return;
  ready_->Record({});
  ready_->Wait(stream_->view());
  for (; next_bucket_ >= 0 && Bucket(next_bucket_).begin >= begin; --next_bucket_)
    plan_.is_tree ? SumInTree(next_bucket_) : SumFast(next_bucket_);
}

// The gradients of all own leaves, as the nodes that the others expect.
std::vector<OverlappedSum::Partial> OverlappedSum::SumOwnLeaves(Range range) {
  std::vector<Partial> nodes;
  for (const Partial& partial : partials_) {
    PushAndJoin(nodes, partial, [&](Partial& left, Partial& right) {
      float* const sum = left.gradient + range.begin;
      Add(sum, right.gradient + range.begin, sum, range.size());
    });
  }
  return nodes;
}

void OverlappedSum::SumInTree(int64_t bucket) {
  const std::vector<Partial> own = SumOwnLeaves(Bucket(bucket));
  std::vector<Range> slices;
  for (int rank = 0; rank < communicator_.world_size(); ++rank)
    slices.push_back(Slice(bucket, rank));
  exchange_->Sum(own, slices, Finished(bucket), stream_->view());
}

void OverlappedSum::SumFast(int64_t bucket) {
  const Range range = Bucket(bucket);
  float* sum = partials_[0].gradient + range.begin;
  for (size_t i = 1; i < partials_.size(); ++i)
    Add(sum, partials_[i].gradient + range.begin, sum, range.size());
  std::vector<int64_t> offsets;
  for (const int64_t offset : partition_.offsets())
    offsets.push_back(std::clamp(offset, range.begin, range.end) - range.begin);
  const Range owned = partition_.OwnedBy(communicator_.rank());
  const Range mine = Intersection(range, owned);
  auto* const out =
      static_cast<float*>(finished_->data()) + (mine.size() > 0 ? mine.begin - owned.begin : 0);
  transport_.ReduceScatterAnyOrder(absl::MakeConstSpan(sum, range.size()), offsets,
                                   absl::MakeSpan(out, mine.size()), stream_->view());
}

void OverlappedSum::Finish(float* gradient_owned) {
  ANYORDER_CHECK(next_bucket_ < 0) << "the last leaf is not complete";
  if (plan_.is_tree) {
    MoveToOwners(gradient_owned);
  } else if (const int64_t size = partition_.OwnedBy(communicator_.rank()).size(); size > 0) {
    Copy(static_cast<float*>(finished_->data()), gradient_owned, size);
  }
  // Also what the next step writes: own partial sums were read here.
  done_->Record(stream_->view());
  done_->Wait({});
  partials_.clear();
}

void OverlappedSum::MoveToOwners(float* gradient_owned) {
  const int me = communicator_.rank();
  const Range owned = partition_.OwnedBy(me);
  std::vector<SendBlock> send;
  std::vector<ReceiveBlock> receive;
  for (int64_t bucket = 0; bucket < num_buckets(); ++bucket) {
    const Range mine = Slice(bucket, me);
    for (int peer = 0; peer < communicator_.world_size(); ++peer) {
      const Range outgoing = Intersection(mine, partition_.OwnedBy(peer));
      const Range incoming = Intersection(Slice(bucket, peer), owned);
      const float* const from = Finished(bucket) + (outgoing.begin - mine.begin);
      float* const to = gradient_owned + (incoming.begin - owned.begin);
      if (peer == me) {
        if (outgoing.size() > 0) Copy(from, to, outgoing.size());
        continue;
      }
      if (outgoing.size() > 0)
        send.push_back({peer, BytesOf(absl::MakeConstSpan(from, outgoing.size()))});
      if (incoming.size() > 0)
        receive.push_back({peer, MutableBytesOf(absl::MakeSpan(to, incoming.size()))});
    }
  }
  transport_.Exchange(send, receive, stream_->view());
}

void OverlappedSum::Add(const float* left, const float* right, float* sum, int64_t count) {
  backend_.Add(ConstTensorView(left, {count}), ConstTensorView(right, {count}),
               TensorView(sum, {count}), stream_->view());
}

void OverlappedSum::Copy(const float* from, float* to, int64_t count) {
  backend_.Cast(ConstTensorView(from, {count}), TensorView(to, {count}), stream_->view());
}

}  // namespace anyorder::dist
