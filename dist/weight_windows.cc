#include "dist/weight_windows.h"

#include <algorithm>
#include <utility>

#include "core/base/status.h"

namespace anyorder::dist {
namespace {

absl::Span<char> BytesOfView(TensorView view) {
  return absl::MakeSpan(static_cast<char*>(view.raw()), view.num_bytes());
}

// Elements `part` of a view of elements `whole`.
TensorView Elements(TensorView view, Range whole, Range part) {
  return view.Slice(part.begin - whole.begin, {part.size()});
}

Range SliceOf(Range window, Range group, int64_t rank) {
  return SliceAt(window, SliceLength(window, group.size()), rank - group.begin);
}

std::vector<Range> GroupsOf(WeightSharding sharding, const RankGroups& nodes) {
  std::vector<Range> groups;
  for (int group = 0; group < nodes.count() && nodes.has_two_levels(); ++group)
    groups.push_back(nodes[group]);
  if (sharding == WeightSharding::kAll || groups.empty()) groups = {{0, nodes.world_size()}};
  return groups;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WeightWindows>> WeightWindows::Create(
    Communicator& communicator, kernels::Backend& backend, DeviceTransport& transport,
    const WeightWindowsOptions& options) {
  auto weights =
      std::unique_ptr<WeightWindows>(new WeightWindows(communicator, backend, transport, options));
  RETURN_IF_ERROR(weights->Allocate());
  return weights;
}

WeightWindows::WeightWindows(Communicator& communicator, kernels::Backend& backend,
                             DeviceTransport& transport, const WeightWindowsOptions& options)
    : communicator_(communicator),
      backend_(backend),
      transport_(transport),
      dtype_(options.dtype),
      partition_(options.num_elements, communicator.world_size()),
      groups_(GroupsOf(options.sharding, communicator.nodes())) {
  for (const Range group : groups_) {
    if (communicator.rank() >= group.begin && communicator.rank() < group.end) group_ = group;
  }
  const bool is_sharded =
      options.sharding != WeightSharding::kNone && communicator.world_size() > 1;
  const size_t count = is_sharded ? options.window_begins.size() : 1;
  for (size_t i = 0; i < count; ++i) {
    const bool is_last = i + 1 == count;
    Window window;
    window.range = {options.window_begins[i],
                    is_last ? options.num_elements : options.window_begins[i + 1]};
    window.is_whole = i == 0 || is_last || window.range.size() == 0;
    window.slice_range = SliceOf(window.range, group_, communicator.rank());
    window.buffer = static_cast<int>(i % 2);
    windows_.push_back(window);
  }
}

absl::Status WeightWindows::Allocate() {
  const auto allocate = [this](int64_t elements) {
    return backend_.Allocate(std::max<int64_t>(1, elements) * SizeOf(dtype_));
  };
  int64_t part_elements = 0;
  std::array<int64_t, 2> buffer_elements{};
  for (const Window& window : windows_) {
    if (window.is_whole) continue;
    const int64_t stride = SliceLength(window.range, group_.size());
    part_elements += stride;
    // With room for equal slices.
    int64_t& elements = buffer_elements[window.buffer];
    elements = std::max(elements, OffsetOf(window.range) + stride * group_.size());
  }
  if (part_elements > 0) {
    ASSIGN_OR_RETURN(part_, allocate(part_elements));
  }
  for (size_t i = 0; i < buffers_.size() && is_sharded(); ++i) {
    ASSIGN_OR_RETURN(buffers_[i], allocate(buffer_elements[i]));
    ASSIGN_OR_RETURN(gathered_[i], backend_.MakeEvent());
  }
  int64_t next = 0;
  for (Window& window : windows_) {
    const auto place_in = [&](const kernels::Buffer& buffer) {
      return TensorView(static_cast<char*>(buffer.data()) + OffsetOf(window.range) * SizeOf(dtype_),
                        dtype_, {window.range.size()});
    };
    if (window.is_whole) {
      // One that is all has room behind it, which a library's own all-gather needs.
      const int64_t room = windows_.size() == 1 ? partition_.padded_elements() : 0;
      const int64_t elements = OffsetOf(window.range) + window.range.size();
      ASSIGN_OR_RETURN(whole_.emplace_back(), allocate(std::max(room, elements)));
      window.data = place_in(*whole_.back());
      continue;
    }
    window.data = place_in(*buffers_[window.buffer]);
    window.slice = TensorView(static_cast<char*>(part_->data()) + next * SizeOf(dtype_), dtype_,
                              {window.slice_range.size()});
    next += SliceLength(window.range, group_.size());
  }
  return absl::OkStatus();
}

TensorView WeightWindows::owned() const {
  const Range owned = partition_.OwnedBy(communicator_.rank());
  return is_sharded() ? TensorView() : whole().Slice(owned.begin, {owned.size()});
}

void WeightWindows::Set(ConstTensorView values) {
  holds_ = {};
  // Slices go by way of the buffers.
  for (const auto& gathered : gathered_)
    if (gathered != nullptr) gathered->Wait({});
  for (Window& window : windows_) {
    window.is_new = true;
    window.is_whole ? GatherFromOwners(window, values, window.data) : SetSlices(window, values);
  }
}

void WeightWindows::Round(const Window& window, ConstTensorView values, TensorView place) {
  const Range owned = partition_.OwnedBy(communicator_.rank());
  const Range mine = Intersection(window.range, owned);
  if (values.is_null() || mine.size() == 0) return;
  backend_.Cast(values.Slice(mine.begin - owned.begin, {mine.size()}),
                Elements(place, window.range, mine), StreamView{});
}

void WeightWindows::GatherFromOwners(const Window& window, ConstTensorView values,
                                     TensorView place) {
  const Range range = window.range;
  if (range.size() == 0) return;
  Round(window, values, place);
  const int64_t size = SizeOf(dtype_);
  std::vector<int64_t> offsets;
  for (const int64_t offset : partition_.offsets())
    offsets.push_back((std::clamp(offset, range.begin, range.end) - range.begin) * size);
  const bool has_room = windows_.size() == 1 && place.raw() == window.data.raw();
  const int64_t elements = has_room ? partition_.padded_elements() : range.size();
  transport_.AllGatherInPlace(absl::MakeSpan(static_cast<char*>(place.raw()), elements * size),
                              offsets, StreamView{});
}

// Each rank rounds the part of the window that it owns into the window's buffer and sends it from
// there to the ranks that keep slices of it.
void WeightWindows::SetSlices(const Window& window, ConstTensorView values) {
  Round(window, values, window.data);
  const int me = communicator_.rank();
  std::vector<SendBlock> send;
  std::vector<ReceiveBlock> receive;
  for (const Range group : groups_) {
    for (int64_t holder = group.begin; holder < group.end; ++holder) {
      const Range out = Intersection(SliceOf(window.range, group, holder), partition_.OwnedBy(me));
      if (out.size() == 0) continue;
      const TensorView from = Elements(window.data, window.range, out);
      if (holder == me) {
        backend_.Cast(from, Elements(window.slice, window.slice_range, out), StreamView{});
      } else {
        send.push_back({static_cast<int>(holder), BytesOfView(from)});
      }
    }
  }
  for (int owner = 0; owner < communicator_.world_size(); ++owner) {
    const Range in = Intersection(window.slice_range, partition_.OwnedBy(owner));
    if (owner == me || in.size() == 0) continue;
    receive.push_back({owner, BytesOfView(Elements(window.slice, window.slice_range, in))});
  }
  transport_.Exchange(send, receive, StreamView{});
}

void WeightWindows::Begin(size_t window) {
  if (windows_[window].is_whole) return;
  Fetch(window);
  gathered_[windows_[window].buffer]->Wait({});
  const bool is_forward = window > last_ || window == 1;
  last_ = window;
  Fetch(is_forward ? window + 1 : window - 1);
}

void WeightWindows::Fetch(size_t index) {
  Window& window = windows_[index];
  if (window.is_whole || holds_[window.buffer] == index) return;
  holds_[window.buffer] = index;
  transport_.FollowMain();
  const StreamView stream = transport_.messages();
  GatherSlices(window, stream);
  if (std::exchange(window.is_new, false) && on_first_gather_)
    on_first_gather_(index, window.data, stream);
  gathered_[window.buffer]->Record(stream);
}

void WeightWindows::GatherSlices(const Window& window, StreamView stream) {
  const Range mine = window.slice_range;
  const auto place_of = [&](Range range) { return Elements(window.data, window.range, range); };
  if (mine.size() > 0) backend_.Cast(window.slice, place_of(mine), stream);
  if (groups_.size() == 1) {
    const int64_t stride = SliceLength(window.range, group_.size()) * SizeOf(dtype_);
    std::vector<int64_t> offsets;
    for (int64_t rank = 0; rank <= group_.size(); ++rank)
      offsets.push_back(std::min(rank * stride, window.data.num_bytes()));
    auto* const data = static_cast<char*>(window.data.raw());
    transport_.AllGatherInPlace(absl::MakeSpan(data, group_.size() * stride), offsets, stream);
    return;
  }
  std::vector<SendBlock> send;
  std::vector<ReceiveBlock> receive;
  for (int64_t rank = group_.begin; rank < group_.end; ++rank) {
    const int peer = static_cast<int>(rank);
    const Range theirs = SliceOf(window.range, group_, rank);
    if (peer == communicator_.rank()) continue;
    if (mine.size() > 0) send.push_back({peer, BytesOfView(place_of(mine))});
    if (theirs.size() > 0) receive.push_back({peer, BytesOfView(place_of(theirs))});
  }
  transport_.Exchange(send, receive, stream);
}

}  // namespace anyorder::dist
