// The weights that a rank computes with: the owners' master weights, rounded.
//
// They are whole on every rank, or come in windows of the flat space: of each but the first and the
// last window a rank keeps a slice, and the window is gathered into one of two buffers shortly
// before the network reads it (ZeRO stage 3, Rajbhandari et al. 2020). Slices are those of all
// ranks, or of the ranks of a node, which together have one copy.
//
// Gathering moves bits and adds nothing, so that no result depends on it.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/check.h"
#include "core/base/tensor.h"
#include "dist/communicator.h"
#include "dist/device_transport.h"
#include "dist/parameter_partition.h"
#include "kernels/backend.h"

namespace anyorder::dist {

// Who keeps a slice of each window.
enum class WeightSharding { kNone, kNode, kAll };
constexpr auto SpellingsOf(WeightSharding) { return std::array{"none", "node", "all"}; }

struct WeightWindowsOptions {
  int64_t num_elements = 0;
  DType dtype = DType::kFloat32;             // fp32 or bf16
  std::vector<int64_t> window_begins = {0};  // from 0 on; with kNone not looked at
  // kNode: ranks of Communicator::nodes(), or all if these are on one node.
  WeightSharding sharding = WeightSharding::kNone;
};

class WeightWindows {
 public:
  struct Window {
    Range range;      // of the flat space
    TensorView data;  // its elements: valid if it is whole, else from its Begin to the next but one
    bool is_whole = false;
    // If it is not whole: what this rank keeps of it.
    Range slice_range;
    TensorView slice;
    int buffer = 0;
    bool is_new = true;  // not gathered since Set
  };

  // Allocates all it will ever need; all but the options is borrowed. ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<WeightWindows>> Create(Communicator& communicator,
                                                               kernels::Backend& backend,
                                                               DeviceTransport& transport,
                                                               const WeightWindowsOptions& options);

  // From left to right.
  const std::vector<Window>& windows() const { return windows_; }
  // Whether a Begin may have to talk.
  bool is_sharded() const { return part_ != nullptr; }
  // All of them. REQUIRES: !is_sharded().
  TensorView whole() const {
    ANYORDER_CHECK(windows_.size() == 1);
    return windows_[0].data;
  }
  // Where an update may write the rounded weights of the owned range itself; null if sharded.
  TensorView owned() const;

  // Collective, an operation of the main stream. The weights become `values`, of each rank's owned
  // range [owned size] fp32, rounded; null: what was written to owned(). They may be other ones
  // than the optimizer's own. Who writes all ranks' whole windows and slices himself need not call
  // it.
  void Set(ConstTensorView values);
  // Collective. The window of `values`, as Set takes them, to `place`, straight from their owners.
  void GatherFromOwners(const Window& window, ConstTensorView values, TensorView place);
  // Collective, if sharded: all ranks begin the same windows in the same order. What the main
  // stream is asked for from now on may read the window. Fetches the next one in the direction of
  // the last call, too, over the one before.
  void Begin(size_t window);
  // Called for each window that is not whole when Begin has gathered it for the first time since
  // Set, in the order of `stream`.
  using Gathered = std::function<void(size_t window, ConstTensorView data, StreamView stream)>;
  void OnFirstGather(Gathered gathered) { on_first_gather_ = std::move(gathered); }

 private:
  WeightWindows(Communicator& communicator, kernels::Backend& backend, DeviceTransport& transport,
                const WeightWindowsOptions& options);
  absl::Status Allocate();
  // This rank's part of `values`, rounded, to the window's place.
  void Round(const Window& window, ConstTensorView values, TensorView place);
  void SetSlices(const Window& window, ConstTensorView values);
  void Fetch(size_t window);
  void GatherSlices(const Window& window, StreamView stream);

  Communicator& communicator_;
  kernels::Backend& backend_;
  DeviceTransport& transport_;
  const DType dtype_;
  const Partition partition_;
  std::vector<Range> groups_;  // of ranks that have one copy together
  Range group_;                // this rank's
  std::vector<Window> windows_;
  std::vector<std::unique_ptr<kernels::Buffer>> whole_;
  std::unique_ptr<kernels::Buffer> part_;  // the slices; null: all windows are whole
  std::array<std::unique_ptr<kernels::Buffer>, 2> buffers_;
  std::array<size_t, 2> holds_{};  // the window in each buffer; 0, which is whole: none
  std::array<std::unique_ptr<kernels::Event>, 2> gathered_;
  size_t last_ = 0;  // window that was begun
  Gathered on_first_gather_;
};

}  // namespace anyorder::dist
