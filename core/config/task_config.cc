#include "core/config/task_config.h"

namespace anyorder {

const char* ExampleTaskName(ExampleTask task) { return EnumName(task); }

}  // namespace anyorder
