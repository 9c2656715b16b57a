// Which options of writing a method heeds.

#pragma once

#include <algorithm>
#include <optional>

#include "absl/strings/string_view.h"

#include "core/generate/any_order/write_options.h"

namespace anyorder {

// Whether an option, named by its key, acts on the method. REQUIRES: there is one.
inline bool ActsOn(absl::string_view key, WriteMethod method) {
  std::optional<bool> acts;
  auto visit = [&](const char* name, const auto&, const char*, const FieldBounds&,
                   const WriteMethods& methods = {}) {
    if (key == name)
      acts = methods.empty() || std::find(methods.begin(), methods.end(), method) != methods.end();
  };
  const WriteOptions options;
  WriteOptions::VisitFields(options, visit);
  return acts.value();
}

}  // namespace anyorder
