// The options that say how text and labelled examples stand in .jsonl files and tables
// (data/prep/EXAMPLES.md): of `anyorder prep` and of what calls it.

#pragma once

#include <CLI/CLI.hpp>

#include <map>
#include <string>

#include "data/prep/table_reader.h"

namespace anyorder::launcher {

struct FieldOptions {
  std::string text_field = "text";
  std::map<std::string, std::string> names;  // of examples: label=gold
  std::string quoting = "rfc4180";
  bool no_header = false;

  // `names`, and `text_field`, which is about examples, too.
  std::map<std::string, std::string> ExampleNames() const;
  // How tables are read.
  data::TableOptions Table() const;
};

// `fields` must live as long as `app`. Returns --field, which is about examples alone.
CLI::Option* AddFieldOptions(CLI::App& app, FieldOptions& fields);

}  // namespace anyorder::launcher
