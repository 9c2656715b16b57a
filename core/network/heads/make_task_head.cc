#include "core/network/heads/class_head.h"
#include "core/network/heads/span_head.h"
#include "core/network/heads/tag_head.h"

namespace anyorder {

std::unique_ptr<TaskHead> MakeTaskHead(const NetworkShape& shape, DeviceInputs& inputs) {
  if (shape.model.task.has_spans()) return std::make_unique<SpanHead>(shape, inputs);
  if (shape.model.task.has_tags()) return std::make_unique<TagHead>(shape, inputs);
  return std::make_unique<ClassHead>(shape, inputs);
}

}  // namespace anyorder
