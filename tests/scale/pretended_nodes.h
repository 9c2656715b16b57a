// A start of a run on pretended nodes of eight ranks: the real trainers and checkpoint services, as
// threads of one process.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

#include "ckpt/service.h"
#include "core/train/trainer.h"
#include "dist/start_guard.h"

namespace anyorder::testing {

inline constexpr int kRanksOfNode = 8;

class PretendedNodes {
 public:
  // Starts the services, which end with this object. `sockets` is a directory for them.
  PretendedNodes(const std::string& run_dir, const std::string& sockets, int64_t attempt, int ranks)
      : run_dir_(run_dir), attempt_(attempt) {
    const int nodes = std::max(1, ranks / kRanksOfNode);
    for (int node = 0; node < nodes; ++node) {
      sockets_.push_back(absl::StrCat(sockets, "/", node, ".", attempt));
      ckpt::ServiceOptions options{run_dir, sockets_[node], "test", attempt, node, nodes};
      options.lease_lifetime = absl::Hours(1);  // renewals depend on time
      services_.push_back(ckpt::Service::Start(options).value());
      threads_.emplace_back(
          [service = services_[node].get()] { EXPECT_TRUE(service->Run().ok()); });
    }
  }
  ~PretendedNodes() {
    for (const auto& service : services_) service->RequestStop();
    for (std::thread& thread : threads_) thread.join();
  }

  // What anyorder-train does behind MPI. `config` outlives the trainer.
  template <typename MakeBackend>
  absl::StatusOr<std::unique_ptr<Trainer>> MakeTrainer(const RunConfig& config,
                                                       dist::Communicator& communicator,
                                                       const MakeBackend& make_backend,
                                                       TrainerOptions options = {}) const {
    options.run_dir = run_dir_;
    options.run_id = "test";
    options.attempt = attempt_;
    options.node = communicator.rank() / kRanksOfNode;
    options.num_nodes = static_cast<int>(sockets_.size());
    options.service_socket = sockets_[options.node];
    options.make_backend = [&](const kernels::BackendOptions&) { return make_backend(); };
    const std::vector<int> node_of_rank = dist::GatherNodes(communicator, options.node);
    options.local_ranks = dist::CountRanksOfNodes(node_of_rank)[options.node];
    communicator.set_nodes(dist::RankGroups(node_of_rank));
    options.first_step_patience = absl::InfiniteDuration();
    return Trainer::Create(config, options, communicator, nullptr);
  }

 private:
  const std::string run_dir_;
  const int64_t attempt_;
  std::vector<std::string> sockets_;
  std::vector<std::unique_ptr<ckpt::Service>> services_;
  std::vector<std::thread> threads_;
};

}  // namespace anyorder::testing
