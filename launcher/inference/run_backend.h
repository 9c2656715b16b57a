// The backend of commands that compute with the weights of a run, and their --device.

#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "core/train/run/run_config.h"
#include "kernels/backends/make_backend.h"
#include "launcher/process/command_line.h"

namespace anyorder::launcher {

// With the run's own table of products, if it trained on such a device. `threads` is 0 for all
// cores that may be used.
// Errors: those of kernels::MakeBackend.
absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeRunBackend(const std::string& run_dir,
                                                                 const RunConfig& config,
                                                                 kernels::DeviceChoice device,
                                                                 int64_t threads);

inline void AddDeviceOption(CLI::App* command, kernels::DeviceChoice* device) {
  AddEnum(command, "--device", *device, "device that computes; auto takes a GPU if there is one");
}

}  // namespace anyorder::launcher
