// A run's TOML file and the overrides of the command line.

#include "core/base/check.h"
#include "core/base/whole_file.h"
#include "core/train/run/config_file.h"
#include "tests/fuzz/fuzz_target.h"

namespace anyorder::fuzz {
namespace {

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds = {"train.global_batch_size=4", "model.attention=bi",
                                    "run.seed=-1"};
  for (const char* name : {"xlnet-tiny", "xlnet-base", "dae-tiny", "transformer-xl-tiny"}) {
    const auto text = ReadWholeFile(std::string(ANYORDER_FUZZ_CONFIGS) + "/" + name + ".toml");
    ANYORDER_CHECK_OK(text.status());
    seeds.push_back(*text);
  }
  return seeds;
}

void Run(absl::string_view text) {
  const absl::StatusOr<RunConfig> config = ParseRunConfig(text, "c");
  if (config.ok()) {
    config->Validate().IgnoreError();
    config->ValidateWorldSize(3).IgnoreError();
  }
  RunConfig changed;
  if (ApplyOverride(text, changed).ok()) changed.Validate().IgnoreError();
}

const bool registered = Register({"config", Seeds, Run});

}  // namespace
}  // namespace anyorder::fuzz
