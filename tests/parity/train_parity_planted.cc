// Trains a run with one mistake planted in it, on one rank: the product's trainer, data and
// checkpoint service around a backend that computes something else than it was asked for
// (planted_backend.h).
//
// Usage: train_parity_planted RUN_DIR PLANT
// RUN_DIR holds a config.toml. Leaves metrics.jsonl and checkpoints there, as a launch does.

#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "ckpt/service.h"
#include "core/base/status.h"
#include "core/train/run/config_file.h"
#include "core/train/run/run_directory.h"
#include "core/train/trainer.h"
#include "tests/parity/planted_backend.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder {
namespace {

absl::Status TrainPlanted(const std::string& run_dir, const std::string& plant) {
  ANYORDER_ASSIGN_OR_RETURN(const RunConfig config,
                            LoadRunConfig(RunDirectory(run_dir).config, {}));
  ckpt::ServiceOptions service_options;
  service_options.run_dir = run_dir;
  service_options.run_id = plant;
  service_options.attempt = 1;
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<ckpt::Service> service,
                            ckpt::Service::Start(service_options));
  absl::Status served;
  std::thread serving([&] { served = service->Run(); });

  TrainerOptions options;
  options.run_dir = run_dir;
  options.run_id = plant;
  options.attempt = 1;
  options.make_backend = [&](const kernels::CpuBackendOptions& cpu)
      -> absl::StatusOr<std::unique_ptr<kernels::Backend>> {
    ANYORDER_ASSIGN_OR_RETURN(auto inner, kernels::MakeCpuBackend(cpu));
    return MakePlantedBackend(plant, config, std::move(inner));
  };
  absl::Status trained;
  testing::RunThreadRanks(1, [&](dist::Communicator& communicator) {
    auto trainer = Trainer::Create(config, options, communicator, nullptr);
    trained = trainer.ok() ? (*trainer)->Run().status() : trainer.status();
  });
  service->RequestStop();
  serving.join();
  return trained.ok() ? served : trained;
}

}  // namespace
}  // namespace anyorder

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: train_parity_planted RUN_DIR PLANT\nplants:");
    for (const std::string& name : anyorder::PlantNames())
      std::fprintf(stderr, " %s", name.c_str());
    std::fprintf(stderr, "\n");
    return 64;
  }
  const absl::Status status = anyorder::TrainPlanted(argv[1], argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "train_parity_planted: %s\n", std::string(status.message()).c_str());
  return anyorder::ExitStatusFor(status);
}
