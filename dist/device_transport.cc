#include "dist/device_transport.h"

#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "dist/staged_transport.h"

namespace anyorder::dist {
namespace {

// Device memory is the host's: every operation of the backend is done when it returns, and so
// nothing is to be waited for.
class DirectTransport final : public DeviceTransport {
 public:
  explicit DirectTransport(Communicator& communicator) : communicator_(communicator) {}

  std::string name() const override { return "MPI"; }
  bool is_asynchronous() const override { return false; }
  void Exchange(absl::Span<const SendBlock> send, absl::Span<const ReceiveBlock> receive,
                StreamView) override {
    communicator_.Exchange(send, receive);
  }
  void AllGatherInPlace(absl::Span<char> all, absl::Span<const int64_t> offsets,
                        StreamView) override {
    communicator_.AllGatherInPlace(all, offsets);
  }
  void ReduceScatterAnyOrder(absl::Span<const float> mine, absl::Span<const int64_t> offsets,
                             absl::Span<float> owned, StreamView) override {
    communicator_.ReduceScatterAnyOrder(mine, offsets, owned);
  }
  void Broadcast(absl::Span<char> bytes, int root, StreamView) override {
    communicator_.Broadcast(bytes, root);
  }
  int64_t bytes_sent() const override { return communicator_.bytes_sent(); }

 private:
  Communicator& communicator_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeCommunicatorTransport(
    Communicator& communicator, kernels::Backend& backend) {
  if (!backend.is_host_memory()) return MakeStagedTransport(communicator, backend, {});
  return std::make_unique<DirectTransport>(communicator);
}

absl::Status TransportChoice::Resolve(DeviceTransport* given, Communicator& communicator,
                                      kernels::Backend& backend) {
  if (given == nullptr) {
    ANYORDER_ASSIGN_OR_RETURN(own_, MakeCommunicatorTransport(communicator, backend));
  }
  transport_ = given != nullptr ? given : own_.get();
  return absl::OkStatus();
}

}  // namespace anyorder::dist
