#include "launcher/start/requested_config.h"

#include <filesystem>
#include <system_error>

#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "core/train/run/config_file.h"
#include "launcher/start/start_request.h"

namespace anyorder::launcher {

absl::StatusOr<RunConfig> RequestedConfig(const std::string& file,
                                          const std::vector<std::string>& overrides,
                                          const RunConfig& defaults) {
  RunConfig config = defaults;
  if (!file.empty()) {
    RunConfig base;
    base.model = defaults.model;
    base.data = defaults.data;
    ANYORDER_RETURN_IF_ERROR(CheckConfigPath("--config", file));
    ANYORDER_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file));
    ANYORDER_ASSIGN_OR_RETURN(config, ParseRunConfig(text, file, base));
  }
  for (const std::string& assignment : overrides)
    ANYORDER_RETURN_IF_ERROR(ApplyOverride(assignment, config));
  return config;
}

void MakeDirectoriesAbsolute(RunConfig& config) {
  for (std::string* directory :
       {&config.data.shards, &config.eval.shards, &config.train.init_from}) {
    if (directory->empty()) continue;
    std::error_code error;
    const std::filesystem::path absolute = std::filesystem::absolute(*directory, error);
    if (!error) *directory = absolute.lexically_normal().string();
  }
}

}  // namespace anyorder::launcher
