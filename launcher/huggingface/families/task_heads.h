// Heads of transformers' classes for tasks, by the names of their tensors.

#pragma once

#include <cstdint>

#include "launcher/huggingface/families/hf_family.h"

namespace anyorder::launcher {

// What else to do where the files have a task's head in part, or one of other classes.
inline constexpr char kOtherTask[] = "; or set [objective] to what these weights were trained for";

// Names of transformers; null where the class has no such tensor.
HfHead ClassesHead(const char* architecture, const char* pooler_weight, const char* pooler_bias,
                   const char* weight, const char* bias);
HfHead ChoicesHead(const char* architecture, const char* pooler_weight, const char* pooler_bias,
                   const char* weight, const char* bias);
HfHead SimpleSpansHead(const char* architecture);
// Of each token; `has_dropout`: HfHead's.
HfHead TagsHead(const char* architecture, bool has_dropout = true);

// Erases from config.json what it says of labels if they are not `count`.
void KeepLabels(int64_t count, HfFamily::Json& json);

}  // namespace anyorder::launcher
