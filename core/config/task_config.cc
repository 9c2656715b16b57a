#include "core/config/task_config.h"

namespace anyorder {

const char* ExampleTaskName(ExampleTask task) {
  for (const auto& [value, name] : kEnumNames<ExampleTask>) {
    if (value == task) return name;
  }
  return "";
}

}  // namespace anyorder
