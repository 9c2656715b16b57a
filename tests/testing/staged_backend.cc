#include "tests/testing/staged_backend.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "tests/testing/forwarding_backend.h"
#include "tests/testing/operation_arguments.h"

namespace anyorder::testing {
namespace {

using namespace kernels;  // NOLINT: a list of all its argument structs

// The memory that one call's arguments point to.
class Transfer {
 public:
  explicit Transfer(Backend& backend) : backend_(backend) {}

  // With so many elements behind the tensor, which the operation may use, too.
  void In(ConstTensorView& view, int64_t behind = 0) { Add(view, behind, false); }
  void Out(TensorView& view, int64_t behind = 0) { Add(view, behind, true); }
  template <typename T>
  void Out(T*& object, int64_t count) {
    const T* read = object;
    In(read, count);
    if (object == nullptr) return;
    places_.back().is_written = true;
    places_.back().set = [&object](char* device) { object = reinterpret_cast<T*>(device); };
  }
  // Device memory of the same size; nothing travels.
  void Workspace(TensorView& view) {
    if (view.is_null()) return;
    workspace_ = backend_.Allocate(view.num_bytes()).value();
    view = TensorView(workspace_->data(), view.dtype(), view.shape());
  }
  template <typename T>
  void In(const T*& array, int64_t count) {
    if (array == nullptr) return;
    places_.push_back({reinterpret_cast<const char*>(array),
                       count * static_cast<int64_t>(sizeof(T)), false,
                       [&array](char* device) { array = reinterpret_cast<const T*>(device); }});
  }

  // Everything to the device; the arguments now point there.
  void Send() {
    // The longer first: a place of no elements may lie at another's begin.
    std::stable_sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
      return std::pair(a.host, -a.bytes) < std::pair(b.host, -b.bytes);
    });
    for (Place& place : places_) Join(place);
    for (Range& range : ranges_) {
      range.buffer = backend_.Allocate(range.bytes + kAlignment).value();
      // As aligned as the test made it.
      range.device = static_cast<char*>(range.buffer->data()) +
                     reinterpret_cast<uintptr_t>(range.host) % kAlignment;
      backend_.CopyToDevice(range.host, range.device, range.bytes, {});
    }
    for (const Place& place : places_) {
      const Range& range = ranges_[place.range];
      place.set(range.device + (place.host - range.host));
    }
  }

  // Results to the host.
  void Receive() {
    for (Range& range : ranges_) {
      range.after.resize(range.bytes);
      backend_.CopyToHost(range.device, range.after.data(), range.bytes, {});
    }
    backend_.Synchronize({});
    for (const Place& place : places_) {
      Range& range = ranges_[place.range];
      if (place.is_written) {
        std::copy_n(range.after.data() + (place.host - range.host), place.bytes,
                    const_cast<char*>(place.host));
      }
    }
    // Written places are alike by now; the others must be.
    for (const Range& range : ranges_)
      ANYORDER_CHECK(std::equal(range.after.begin(), range.after.end(), range.host))
          << "an operation wrote to what it may only read";
  }

 private:
  static constexpr int64_t kAlignment = 64;
  struct Place {
    const char* host;
    int64_t bytes;
    bool is_written;
    std::function<void(char*)> set;
    size_t range = 0;
  };
  // Places that overlap travel together.
  struct Range {
    const char* host;
    int64_t bytes;
    std::unique_ptr<Buffer> buffer;
    char* device = nullptr;
    std::vector<char> after;
  };

  template <typename View>
  void Add(View& view, int64_t behind, bool is_written) {
    if (view.is_null()) return;
    places_.push_back({static_cast<const char*>(view.raw()),
                       view.num_bytes() + behind * SizeOf(view.dtype()), is_written,
                       [&view](char* device) { view = View(device, view.dtype(), view.shape()); }});
  }

  void Join(Place& place) {
    if (ranges_.empty() || place.host >= ranges_.back().host + ranges_.back().bytes)
      ranges_.push_back({place.host, 0, nullptr, nullptr, {}});
    Range& range = ranges_.back();
    range.bytes = std::max(range.bytes, place.host + place.bytes - range.host);
    place.range = ranges_.size() - 1;
  }

  Backend& backend_;
  std::vector<Place> places_;
  std::vector<Range> ranges_;
  std::unique_ptr<Buffer> workspace_;
};

class StagedBackend final : public ForwardingBackend {
 public:
  explicit StagedBackend(std::unique_ptr<Backend> inner) : ForwardingBackend(std::move(inner)) {}

 private:
  void Enqueue(const Operation& operation, StreamView stream) override {
    std::visit(
        [&](const auto* args) {
          auto moved = *args;
          Transfer transfer(*this);
          VisitArguments(moved, transfer);
          transfer.Send();
          ForwardingBackend::Enqueue(&moved, stream);
          transfer.Receive();
        },
        operation);
  }
};

}  // namespace

std::unique_ptr<Backend> MakeStagedBackend(std::unique_ptr<Backend> inner) {
  return std::make_unique<StagedBackend>(std::move(inner));
}

}  // namespace anyorder::testing
