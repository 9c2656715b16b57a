// Heads of transformers' classes for tasks, by the names of their tensors.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "launcher/huggingface/families/hf_family.h"

namespace anyorder::launcher {

// What else to do where the files have a task's head in part, or one of other classes.
inline constexpr char kOtherTask[] = "; or set [objective] to what these weights were trained for";

// A head's dense layers by their names here and there: each has a weight and a bias.
using DenseNames = std::vector<std::pair<std::string, std::string>>;
HfHead DenseHead(const char* name, const std::string& architecture, const char* remedy,
                 const DenseNames& layers, HfHeadKind kind = HfHeadKind::kLanguageModel);

// A head of the last layer and, unless it is "", the pooler before it. Without `has_bias` the last
// has none.
HfHead ClassesHead(const std::string& architecture, const std::string& pooler,
                   const std::string& output, bool has_bias = true);
HfHead ChoicesHead(const std::string& architecture, const std::string& pooler,
                   const std::string& output);
HfHead SimpleSpansHead(const std::string& architecture);
// A head on each token; `has_dropout`: HfHead's.
HfHead TagsHead(const std::string& architecture, bool has_dropout = true);

// Erases from config.json what it says of labels if they are not `count`.
void KeepLabels(int64_t count, Json& json);

}  // namespace anyorder::launcher
