#include "launcher/process/field_options.h"

#include "absl/strings/str_split.h"

#include "launcher/process/command_line.h"

namespace anyorder::launcher {
namespace {

// "label=gold" into `names`; what is wrong with it otherwise.
std::string ParseFieldName(const std::string& text, std::map<std::string, std::string>& names) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  if (parts.size() != 2) return text + " is not FIELD=NAME, such as label=gold";
  names[parts[0]] = parts[1];
  return "";
}

}  // namespace

std::map<std::string, std::string> FieldOptions::ExampleNames() const {
  std::map<std::string, std::string> all = names;
  if (text_field != "text") all.emplace("text", text_field);
  return all;
}

data::TableOptions FieldOptions::Table() const {
  return {.has_header = !no_header, .has_quotes = quoting == "rfc4180"};
}

CLI::Option* AddFieldOptions(CLI::App& app, FieldOptions& fields) {
  app.add_option("--text-field", fields.text_field,
                 ".jsonl, .csv and .tsv: field or column that holds the text")
      ->capture_default_str()
      ->type_name("NAME");
  app.add_flag("--no-header", fields.no_header,
               ".csv and .tsv: the first row is data; columns are called 1, 2, ...");
  AddChoice(&app, "--quoting", fields.quoting, {"rfc4180", "none"},
            ".csv and .tsv: a cell in quotes may hold separators and line ends; with none, quotes "
            "are part of the text, as in GLUE's files");
  return app
      .add_option_function<std::vector<std::string>>(
          "--field", [](const std::vector<std::string>&) {},
          "examples: what a field is called in the files, such as premise=sentence1 label=gold; "
          "choices and text may name several: text=title,body")
      ->type_name("FIELD=NAME")
      ->check([&fields](const std::string& text) { return ParseFieldName(text, fields.names); });
}

}  // namespace anyorder::launcher
