// Reads a run's configuration: one TOML file, then `section.key=value` overrides.
//
// Strict: an unknown section or key, a wrong type, an enumerator that does not exist and a key
// given twice are InvalidArgument with file, line, key and the nearest known name. Keys that are
// absent keep their documented defaults. `objective.name` may be any name of ObjectiveNamed; what
// is read has the registered one.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/train/run/run_config.h"

namespace anyorder {

// `path` names the text in messages; keys that the text lacks keep their values of `base`. All
// faults of the text come in one status; values are not validated yet.
absl::StatusOr<RunConfig> ParseRunConfig(absl::string_view text, absl::string_view path,
                                         const RunConfig& base = {});

// "section.key=value"; strings and enumerators need no quotes.
absl::Status ApplyOverride(absl::string_view assignment, RunConfig& config);

// All of them in turn, and validates. A fault that came with an override names that `--set`, others
// `origin`.
absl::Status ApplyOverrides(const std::vector<std::string>& overrides, const std::string& origin,
                            RunConfig& config);

// Reads, overrides, validates; `origin` is the file. Logs which objective another name of it means.
// NotFound if the file cannot be opened.
absl::StatusOr<RunConfig> LoadRunConfig(const std::string& path,
                                        const std::vector<std::string>& overrides,
                                        const RunConfig& base = {});

// Directories that the configuration names: ranks may start in another directory, and so may the
// next launch. Errors: InvalidArgument for one that is not UTF-8, which no TOML file can hold.
absl::Status MakeDirectoriesAbsolute(RunConfig& config);

}  // namespace anyorder
