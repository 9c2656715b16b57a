// One rank of a run that is set up, and takes a step, without memory, peers or data: what a plan is
// read off (kernels/backends/sizing_backend.h). It is the code that trains, which talks to ranks
// that never answer and need not.

#pragma once

#include <cstdint>
#include <cstring>
#include <memory>

#include "absl/status/statusor.h"

#include "core/objective/objective.h"
#include "core/train/evaluation/evaluator.h"
#include "core/train/plan/training_parts.h"
#include "core/train/run/run_config.h"
#include "dist/communicator.h"
#include "dist/device_transport.h"
#include "kernels/adamw.h"
#include "kernels/backends/sizing_backend.h"

namespace anyorder {

// The machines of a run.
struct Cluster {
  int64_t ranks = 1;
  int64_t ranks_per_node = 0;  // 0: all on one node
  kernels::SizedDevice device;
  // What a rank sends in a second to ranks of its node, and of others. 0: in no time.
  double node_bytes_per_second = 0;
  double net_bytes_per_second = 0;

  int64_t ranks_on_node() const { return ranks_per_node > 0 ? ranks_per_node : ranks; }
  bool IsNear(int64_t a, int64_t b) const {
    return ranks_per_node == 0 || a / ranks_per_node == b / ranks_per_node;
  }
};

// What a rank sends.
struct WireBytes {
  double node = 0;  // to ranks of its node
  double net = 0;   // to others
};

// What a step of rank 0 takes, which has the most to do.
struct PlannedStep {
  kernels::OperationCost cost;
  double update_bytes = 0;  // of cost.flat_bytes the optimizer's
  WireBytes sent;
  double seconds = 0;  // with the rates of the cluster
};

class PlannedRank {
 public:
  // REQUIRES: a configuration that is valid for so many ranks. InvalidArgument for what the network
  // refuses, ResourceExhausted for more than a process can address.
  static absl::StatusOr<std::unique_ptr<PlannedRank>> Create(const RunConfig& config,
                                                             int64_t vocab_size,
                                                             const Cluster& cluster, int rank = 0);
  ~PlannedRank();

  const kernels::SizingBackend& backend() const { return backend_; }
  const TrainingParts& parts() const { return parts_; }
  // What it saves (ckpt::Client).
  std::vector<ckpt::TensorRange> Ranges() { return parts_.state->Ranges(); }
  // All microbatches of a step, the exchanges, and the update.
  PlannedStep Step();

 private:
  // Whose norms are such that no step is skipped.
  class Device final : public kernels::SizingBackend {
   public:
    using SizingBackend::SizingBackend;
    void CopyToHost(const void*, void* host, int64_t bytes, StreamView) override {
      kernels::NormControl control;
      control.updates = ++updates_;
      if (bytes == sizeof(control)) std::memcpy(host, &control, sizeof(control));
    }

   private:
    int64_t updates_ = 0;
  };
  class Peers;
  class Wire;

  PlannedRank(const RunConfig& config, const Cluster& cluster);
  absl::Status SetUp(int64_t vocab_size, int rank);

  const RunConfig& config_;
  const Cluster cluster_;
  Device backend_;
  WireBytes sent_;
  std::unique_ptr<Peers> peers_;
  std::unique_ptr<dist::DeviceTransport> transport_;
  std::unique_ptr<Objective> objective_;
  TrainingParts parts_;
  std::unique_ptr<Evaluator> evaluator_;  // null: no evaluations
};

}  // namespace anyorder
