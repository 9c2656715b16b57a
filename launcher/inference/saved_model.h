// A checkpoint of a run, ready to compute with, and the dataset that it is asked about.

#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "core/train/run/run_config.h"
#include "core/train/state/saved_weights.h"
#include "data/dataset/dataset.h"
#include "kernels/backends/make_backend.h"
#include "launcher/process/command_line.h"

namespace anyorder::launcher {

struct SavedModelOptions {
  std::string run_dir;
  int64_t step = -1;    // -1: the newest good checkpoint
  int64_t threads = 0;  // 0: all usable cores
  kernels::DeviceChoice device = kernels::DeviceChoice::kAuto;
  bool raw_weights = false;  // not the average of a run that keeps one
  bool takes_text = false;   // the objective's demands on plain text are not checked

  WeightChoice weights() const { return raw_weights ? WeightChoice::kRaw : WeightChoice::kAverage; }
};

// The backend of a command that computes with the weights of a run: with the run's own table of
// products, if it trained on such a device. Errors: those of kernels::MakeBackend.
absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeRunBackend(const SavedModelOptions& options,
                                                                 const RunConfig& config);

inline void AddDeviceOption(CLI::App* command, kernels::DeviceChoice* device) {
  AddEnum(command, "--device", *device, "device that computes; auto takes a GPU if there is one");
}

struct SavedModel {
  RunConfig config;
  std::string data_path;
  std::unique_ptr<data::Dataset> data;
  std::unique_ptr<kernels::Backend> backend;
  int64_t step = 0;
  bool is_training_data = false;
  std::string weights_used;  // "ema" or "raw" of a run that keeps an average; else ""
  SavedWeights weights;
};

// `config` is the run's, `data_path` a dataset. Errors: those of Dataset::Open, CheckTaskData and
// MakeRunBackend; FailedPrecondition for a dataset of another tokenizer, or whose classes have
// other numbers than those that the run learned, as far as its training data are still there;
// NotFound, DataLoss.
absl::StatusOr<SavedModel> OpenSavedModel(const SavedModelOptions& options, const RunConfig& config,
                                          const std::string& data_path);

}  // namespace anyorder::launcher
