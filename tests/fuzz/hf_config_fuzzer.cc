// config.json of an imported model.

#include "core/base/check.h"
#include "launcher/huggingface/hf_config.h"
#include "tests/fuzz/fuzz_target.h"

namespace anyorder::fuzz {
namespace {

std::vector<std::string> Seeds() {
  RunConfig config;
  return {launcher::HfConfigText(config, 100, {0, 1, 2, 3, 4, 5, 6, 7, 8})};
}

void Run(absl::string_view text) {
  const auto parsed = launcher::ParseHfConfig(text, "c");
  if (!parsed.ok()) return;
  RunConfig config;
  config.model = parsed->model;
  const std::string updated =
      launcher::UpdatedHfConfigText(std::string(text), config, parsed->vocab_size, true);
  ANYORDER_CHECK_OK(launcher::ParseHfConfig(updated, "updated").status());
}

const bool registered = Register({"hf_config", Seeds, Run});

}  // namespace
}  // namespace anyorder::fuzz
