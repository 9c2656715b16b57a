#include "dist/gradient_reducer.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder::dist {
namespace {

// Where a call waits for its peers nothing runs meanwhile, and slices are added while they are in
// cache.
constexpr int64_t kMaxWaitingSlice = int64_t{1} << 20;

// Many ranks get larger buckets, not shorter slices.
int64_t BucketElements(const GradientReducerOptions& options, const DeviceTransport& transport,
                       int world_size) {
  const int64_t elements = std::max(options.bucket_bytes / static_cast<int64_t>(sizeof(float)),
                                    world_size * options.min_slice_elements);
  return transport.is_asynchronous() ? elements : std::min(elements, world_size * kMaxWaitingSlice);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GradientReducer>> GradientReducer::Create(
    Communicator& communicator, kernels::Backend& backend, DeviceTransport& transport,
    const GradientReducerOptions& options) {
  const int ranks = communicator.world_size();
  RETURN_IF_ERROR(LeafSchedule::Check(options.num_leaves, ranks, options.leaves_per_exchange));
  if (options.num_elements < 1 || options.num_scalars < 0) {
    return InvalidArgument("gradient reduction of ", options.num_elements, " elements and ",
                           options.num_scalars, " scalars: nothing to sum");
  }
  // One rank sums by rounds of a leaf, which have no exchange.
  const LeafSchedule schedule(options.num_leaves, ranks,
                              ranks == 1 ? 1 : options.leaves_per_exchange);
  auto reducer = std::unique_ptr<GradientReducer>(
      new GradientReducer(communicator, backend, transport, options, schedule));
  RETURN_IF_ERROR(reducer->AllocateBuffers());
  return reducer;
}

GradientReducer::GradientReducer(Communicator& communicator, kernels::Backend& backend,
                                 DeviceTransport& transport, const GradientReducerOptions& options,
                                 const LeafSchedule& schedule)
    : communicator_(communicator),
      backend_(backend),
      options_(options),
      transport_(transport),
      partition_(options.num_elements, communicator.world_size()),
      schedule_(schedule),
      leaves_(schedule.LeavesOf(communicator.rank())),
      windows_({.num_elements = options.num_elements,
                .begins = options.window_begins,
                .bucket_elements = BucketElements(options, transport, communicator.world_size()),
                .min_slice_elements = options.min_slice_elements},
               communicator.nodes(), communicator.rank()) {}

absl::StatusOr<float*> GradientReducer::Allocate(MemoryPlace place, int64_t elements) {
  const int64_t bytes = std::max<int64_t>(1, elements) * static_cast<int64_t>(sizeof(float));
  ASSIGN_OR_RETURN(memory_.emplace_back(), backend_.AllocateAt(place, bytes));
  return static_cast<float*>(memory_.back()->data());
}

absl::Status GradientReducer::AllocateBuffers() {
  size_t most_sums = 0;
  for (int64_t round = 0; round < schedule_.num_rounds(); ++round) {
    const size_t written = is_alone() ? schedule_.NodesBefore(round).size() + 1 : 0;
    most_sums = std::max({most_sums, written, schedule_.NodesBefore(round + 1).size()});
  }
  for (size_t i = 0; i < most_sums; ++i) {
    ASSIGN_OR_RETURN(sums_.emplace_back(), Allocate(options_.partials, windows_.layout_elements()));
  }
  ASSIGN_OR_RETURN(exchange_, TreeExchange::Create(communicator_, backend_, transport_, schedule_,
                                                   windows_.largest_slice()));
  if (is_alone()) return absl::OkStatus();
  for (int level = 0; level < schedule_.level(); ++level) {
    ASSIGN_OR_RETURN(waiting_.emplace_back(),
                     Allocate(MemoryPlace::kDevice, options_.num_elements));
  }
  for (int buffer = 0; buffer < GradientWindows::kBuffers; ++buffer) {
    ASSIGN_OR_RETURN(buffers_[buffer],
                     Allocate(MemoryPlace::kDevice, windows_.buffer_elements(buffer)));
    ASSIGN_OR_RETURN(read_[buffer], backend_.MakeEvent());
  }
  ASSIGN_OR_RETURN(owned_sum_, Allocate(MemoryPlace::kDevice, owned().size()));
  ASSIGN_OR_RETURN(done_, backend_.MakeEvent());
  return absl::OkStatus();
}

// A left child waits where it is written, others are added to it.
float* GradientReducer::DataOf(const GradientWindows::Window& window) const {
  if (is_alone()) return sums_[schedule_.NodesBefore(round_).size()] + window.range.begin;
  const bool is_left = schedule_.level() > 0 && place_in_node() % 2 == 0;
  return is_left ? waiting_[0] + window.range.begin
                 : buffers_[window.buffer] + OffsetOf(window.range);
}

const std::vector<GradientReducer::Place>& GradientReducer::LeafPlaces() {
  if (next_window_ >= 0) return places_;
  ANYORDER_CHECK(static_cast<int64_t>(next_) < num_leaves())
      << "all leaves are in; ReduceScatter comes next";
  for (const GradientWindows::Window& window : windows_.windows())
    if (has_leaf()) places_.push_back({window.range, DataOf(window)});
  next_window_ = static_cast<int64_t>(windows_.windows().size());
  return places_;
}

void GradientReducer::BeginWindow(int64_t element) {
  if (!is_asynchronous()) return;
  // What waits is read by the exchange of a round, which is over when the next one's begins. A rank
  // with a fault does not call this; nobody reads the sums of its step.
  if (schedule_.level() > 0 && place_in_node() == 0) done_->Wait({});
  for (const GradientWindows::Window& window : windows_.windows()) {
    if (element < window.range.begin || element >= window.range.end) continue;
    read_[window.buffer]->Wait({});
  }
}

void GradientReducer::GradientReady(int64_t begin) {
  ANYORDER_CHECK(next_window_ >= 0) << "GradientReady without LeafPlaces";
  while (next_window_ > 0 && windows_.windows()[next_window_ - 1].range.begin >= begin)
    Finish(windows_.windows()[--next_window_]);
}

void GradientReducer::Finish(const GradientWindows::Window& window) {
  const Place place =
      has_leaf() ? places_[&window - windows_.windows().data()] : Place{window.range, nullptr};
  if (options_.examine && has_leaf())
    options_.examine(ConstTensorView(place.data, {place.range.size()}));
  if (!is_last_of_node()) {
    if (has_leaf()) JoinSiblings(place.range, place.data, {});
    return;
  }
  if (is_asynchronous()) transport_.FollowMain();
  AddRound(window.buckets, place.data);
  if (is_asynchronous()) read_[window.buffer]->Record(stream());
}

float* GradientReducer::JoinSiblings(Range range, float* leaf, StreamView stream) {
  const Shape shape{range.size()};
  float* sum = leaf;
  const int64_t place = place_in_node();
  for (int level = 0; place >> level & 1; ++level) {
    float* const left = waiting_[level] + range.begin;
    const bool waits = (place >> (level + 1) & 1) == 0 && level + 1 < schedule_.level();
    float* const out = waits ? waiting_[level + 1] + range.begin : left;
    backend_.Add(ConstTensorView(left, shape), ConstTensorView(sum, shape), TensorView(out, shape),
                 stream);
    sum = out;
  }
  return sum;
}

// own_window: of the window that these are the buckets of, this rank's leaf; null if it has none.
void GradientReducer::AddRound(Range buckets, float* own_window) {
  const int64_t origin = windows_.Bucket(buckets.begin).begin;
  for (int64_t bucket = buckets.end - 1; bucket >= buckets.begin; --bucket) {
    const Range range = windows_.Bucket(bucket);
    const float* own = nullptr;
    if (own_window != nullptr)
      own = JoinSiblings(range, own_window + (range.begin - origin), stream());
    std::vector<Range> slices;
    for (int rank = 0; rank < communicator_.world_size(); ++rank) {
      const Range slice = windows_.Slice(bucket, rank);
      slices.push_back({slice.begin - range.begin, slice.end - range.begin});
    }
    std::vector<float*> sums;
    for (float* const sum : sums_) sums.push_back(sum + windows_.PlaceOf(bucket));
    exchange_->AddRound(round_, own, slices, sums, stream());
  }
}

void GradientReducer::CommitLeaf(int64_t leaf, absl::Span<const double> scalars) {
  ANYORDER_CHECK(has_leaf() && leaf == leaves_[next_])
      << "leaf " << leaf << " where " << (has_leaf() ? leaves_[next_] : -1) << " was due";
  ANYORDER_CHECK(static_cast<int>(scalars.size()) == options_.num_scalars);
  scalars_.insert(scalars_.end(), scalars.begin(), scalars.end());
  EndLeaf();
}

void GradientReducer::SkipLeaf() {
  ANYORDER_CHECK(!has_leaf()) << "leaf " << leaves_[next_] << " is missing";
  LeafPlaces();
  EndLeaf();
}

void GradientReducer::EndLeaf() {
  GradientReady(0);
  places_.clear();
  next_window_ = -1;
  const bool ends_round = is_last_of_node();
  ++next_;
  if (!ends_round) return;
  if (is_asynchronous()) done_->Record(stream());
  ++round_;
}

TensorView GradientReducer::ReduceScatter(absl::Span<double> scalars) {
  ANYORDER_CHECK(static_cast<int>(scalars.size()) == options_.num_scalars);
  while (static_cast<int64_t>(next_) < num_leaves()) SkipLeaf();
  if (!is_alone()) MoveToOwners();
  if (!scalars.empty()) SumScalars(communicator_, schedule_, scalars_, scalars);
  scalars_.clear();
  next_ = 0;
  round_ = 0;
  return TensorView(is_alone() ? sums_[0] : owned_sum_, {owned().size()});
}

void GradientReducer::MoveToOwners() {
  // By window, so that no call has all buckets' messages.
  for (const GradientWindows::Window& window : windows_.windows()) MoveToOwners(window);
  if (!is_asynchronous()) return;
  // Also what the next step writes: what waits was read here.
  done_->Record(stream());
  done_->Wait({});
}

void GradientReducer::MoveToOwners(const GradientWindows::Window& window) {
  const int me = communicator_.rank();
  std::vector<SendBlock> send;
  std::vector<ReceiveBlock> receive;
  for (int64_t bucket = window.buckets.begin; bucket < window.buckets.end; ++bucket) {
    const Range mine = windows_.Slice(bucket, me);
    const float* sum = sums_[0] + windows_.PlaceOf(bucket);
    // Libraries send what lies in the device's memory: where the window was.
    if (options_.partials == MemoryPlace::kHost && mine.size() > 0) {
      float* const place = buffers_[window.buffer] + mine.begin - window.range.begin;
      Copy(sum, place, mine.size());
      sum = place;
    }
    for (int peer = 0; peer < communicator_.world_size(); ++peer) {
      const Range outgoing = Intersection(mine, partition_.OwnedBy(peer));
      const Range incoming = Intersection(windows_.Slice(bucket, peer), owned());
      const float* const from = sum + (outgoing.begin - mine.begin);
      float* const to = owned_sum_ + (incoming.begin - owned().begin);
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
  transport_.Exchange(send, receive, stream());
}

void GradientReducer::Copy(const float* from, float* to, int64_t count) {
  backend_.Cast(ConstTensorView(from, {count}), TensorView(to, {count}), stream());
}

}  // namespace anyorder::dist
