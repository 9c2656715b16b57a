// Longformer (modeling_longformer.py). Its windows count both sides, ours one.

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/config/attention_windows.h"
#include "launcher/huggingface/families/bert_like.h"

namespace anyorder::launcher {
namespace {

constexpr const char* kWindow = "attention_window";

// The window of each layer, both sides; empty where they are none of Longformer's: the same for all
// heads of a layer, as many tokens on either side, without gaps.
std::vector<int64_t> WindowsOf(const ModelConfig& model) {
  std::vector<int64_t> windows;
  const absl::StatusOr<std::vector<kernels::Band>> bands = AttentionWindows(model);
  if (!bands.ok()) return windows;
  for (size_t first = 0; first < bands->size(); first += static_cast<size_t>(model.num_heads)) {
    const kernels::Band& band = (*bands)[first];
    const auto begin = bands->begin() + static_cast<std::ptrdiff_t>(first);
    const bool alike =
        std::all_of(begin, begin + model.num_heads, [&band](const kernels::Band& other) {
          return other.left == band.left && other.right == band.right &&
                 other.stride == band.stride;
        });
    if (!alike || band.left < 1 || band.left != band.right || band.stride != 1) return {};
    windows.push_back(2 * int64_t{band.left});
  }
  return windows;
}

// 0 if it is no window.
int64_t WindowFrom(const Json& value) {
  if (!value.is_number_integer() || value < 2 || value > 1 << 20) return 0;
  const auto window = value.get<int64_t>();
  return window % 2 == 0 ? window : 0;
}

// As model.attention_windows has them.
std::string WindowsText(std::vector<int64_t> windows) {
  if (std::adjacent_find(windows.begin(), windows.end(), std::not_equal_to<>()) == windows.end())
    windows.resize(1);
  return absl::StrJoin(windows, "; ", [](std::string* text, int64_t window) {
    absl::StrAppend(text, window / 2, ":", window / 2);
  });
}

void ReadWindows(HfConfigReader& reader, ModelConfig& model) {
  model.attention_windows = WindowsText({512});
  if (!reader.faults().empty()) return;
  const auto layers = static_cast<size_t>(model.num_layers);
  const Json* const member = reader.Find(kWindow);
  const Json value = member != nullptr ? *member : Json(512);
  std::vector<int64_t> windows;
  for (const Json& one : value.is_array() ? value : Json::array({value}))
    windows.push_back(WindowFrom(one));
  const bool fits = std::count(windows.begin(), windows.end(), 0) == 0 &&
                    (!value.is_array() || windows.size() == layers);
  if (fits) {
    model.attention_windows = WindowsText(windows);
  } else {
    reader.faults().Add(absl::StrCat("'", kWindow, "' is ", HfConfigReader::Text(value),
                                     " but must be an even number, or one for each layer"));
  }
}

void VisitWindows(HfKeys& keys) {
  ModelConfig& model = keys.model;
  keys.Names(model.attention_windows, kWindow);
  if (keys.reader() != nullptr) return ReadWindows(*keys.reader(), model);
  const std::vector<int64_t> windows = WindowsOf(model);
  if (windows.empty()) return keys.Write(kWindow, model.attention_windows);
  model.attention_windows = WindowsText(windows);
  // What the imported model says in its own way stays.
  ModelConfig before = model;
  if (keys.updated() != nullptr) {
    HfConfigReader reader(*keys.updated());
    ReadWindows(reader, before);
    if (before.attention_windows == model.attention_windows) return;
  }
  keys.Write(kWindow, windows, HfKeys::In::kTrained);
}

class Longformer : public RobertaLikeFamily {
 public:
  using RobertaLikeFamily::RobertaLikeFamily;
  void VisitKeys(HfKeys& keys) const override {
    RobertaLikeFamily::VisitKeys(keys);
    keys.Replace(keys.model.global_projections, false, true);
    keys.Set(keys.model.global_projections, true);
    VisitWindows(keys);
  }
  TensorTable Tensors(const ModelConfig& model, const ParameterLayout& layout) const override;
};

// Where a run has no projections of its own for global tokens, those of all others are repeated:
// the same function.
TensorTable Longformer::Tensors(const ModelConfig& model, const ParameterLayout& layout) const {
  TensorTable tensors = RobertaLikeFamily::Tensors(model, layout);
  if (model.global_projections) return tensors;
  TensorTable copies;
  for (const FileTensor& tensor : tensors) {
    for (const char* name : {".query.", ".key.", ".value."}) {
      const size_t place = tensor.name.find(name);
      if (place == std::string::npos) continue;
      copies.push_back(tensor);
      copies.back().name.insert(place + std::string(name).size() - 1, "_global");
    }
  }
  tensors.insert(tensors.end(), copies.begin(), copies.end());
  return tensors;
}

}  // namespace

const HfFamily& LongformerFamily() {
  static const Longformer family({.model_type = "longformer",
                                  .architecture = "LongformerForMaskedLM",
                                  .bare_architecture = "LongformerModel",
                                  .prefix = "longformer."},
                                 "Longformer");
  return family;
}

}  // namespace anyorder::launcher
