// The options of a command line that say how a text is written.

#pragma once

#include <CLI/CLI.hpp>

#include <string>

#include "core/generate/any_order/write_options.h"
#include "launcher/texts/text_service.h"

namespace anyorder::launcher {

struct WriteFlags {
  std::string method;  // "": the model's usual one
  WriteOptions write;
};

// --method, and WriteOptions::VisitFields.
void AddWriteFlags(CLI::App* command, WriteFlags& flags);

// What AddWriteFlags' options say for a model. InvalidArgument for a method that is not the
// model's, and of WriteOptions::Validate.
absl::StatusOr<WriteOptions> OptionsOf(const WriteFlags& flags, const ModelFacts& facts);

// The facts with the methods that fill blanks, if there are any.
ModelFacts FactsForFilling(ModelFacts facts);

}  // namespace anyorder::launcher
