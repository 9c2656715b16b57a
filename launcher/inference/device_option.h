// --device, of every command that computes.

#pragma once

#include <CLI/CLI.hpp>

#include <map>
#include <string>

#include "core/base/fields.h"
#include "kernels/backends/make_backend.h"

namespace anyorder::launcher {

inline void AddDeviceOption(CLI::App* command, kernels::DeviceChoice* device) {
  std::map<std::string, kernels::DeviceChoice> names;
  for (const auto& [value, name] : kEnumNames<kernels::DeviceChoice>) names[name] = value;
  command->add_option("--device", *device, "device that computes; auto takes a GPU if there is one")
      ->transform(CLI::CheckedTransformer(names).description("{auto,cpu,cuda}"))
      ->default_str("auto");
}

}  // namespace anyorder::launcher
