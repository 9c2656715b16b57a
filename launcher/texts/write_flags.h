// The options of a command line that say how a text is written.

#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>

#include "core/generate/any_order/write_options.h"
#include "launcher/texts/text_service.h"

namespace anyorder::launcher {

struct WriteFlags {
  std::string method;  // "": the model's usual one
  WriteOptions write;
  std::optional<int64_t> draft;
};

// --method, --temperature, --top-k, --top-p, --seed and what single methods take.
void AddWriteFlags(CLI::App* command, WriteFlags& flags);

// What they say for a model. InvalidArgument for a method that there is not.
absl::StatusOr<WriteOptions> OptionsOf(const WriteFlags& flags, const ModelFacts& facts);

}  // namespace anyorder::launcher
