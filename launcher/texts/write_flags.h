// The options of a command line that say how a text is written.

#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>

#include "core/generate/any_order/write_options.h"
#include "launcher/texts/text_service.h"

namespace anyorder::launcher {

struct WriteFlags {
  std::string method;  // "": the model's usual one
  WriteOptions write;
};

inline constexpr int64_t kMostOrders = 1024;

// --method, --temperature, --top-k, --top-p, --seed and MethodOptions.
void AddWriteFlags(CLI::App* command, WriteFlags& flags);

// --bound-samples, of commands that say how probable texts are.
inline constexpr int64_t kMostBoundSamples = int64_t{1} << 20;
CLI::Option* AddBoundSamples(CLI::App* command, int64_t& samples);

// What AddWriteFlags' options say for a model. InvalidArgument for a method that is not the
// model's, and of WriteOptions::Validate.
absl::StatusOr<WriteOptions> OptionsOf(const WriteFlags& flags, const ModelFacts& facts);

// The same facts with the methods that fill blanks, if there are any.
ModelFacts FactsForFilling(ModelFacts facts);

}  // namespace anyorder::launcher
