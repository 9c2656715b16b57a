#include "core/config/attention_windows.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/status.h"

namespace anyorder {
namespace {

absl::Status Unreadable(absl::string_view part, absl::string_view reason) {
  return InvalidArgument(
      "model.attention_windows has '", absl::StripAsciiWhitespace(part), "', ", reason,
      "; write LEFT:RIGHT or LEFT:RIGHT:STRIDE, groups of heads as \"2x 8:0 / 6x 8:0:2\", "
      "layers between semicolons");
}

// Times the largest stride it fits 32 bits.
constexpr int64_t kMaxWindow = 1 << 20;

bool ParseNumber(absl::string_view text, int64_t low, int64_t* value) {
  return absl::SimpleAtoi(absl::StripAsciiWhitespace(text), value) && *value >= low &&
         *value <= kMaxWindow;
}

absl::StatusOr<kernels::Band> ParseBand(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  if (parts.size() != 2 && parts.size() != 3) return Unreadable(text, "which is not a window");
  kernels::Band band;
  for (const bool is_left : {true, false}) {
    const absl::string_view part = absl::StripAsciiWhitespace(parts[is_left ? 0 : 1]);
    int64_t size = -1;
    if (part != "*" && !ParseNumber(part, 0, &size))
      return Unreadable(text, "whose sides must be 0 or more, or *");
    (is_left ? band.left : band.right) = static_cast<int32_t>(size);
  }
  int64_t stride = 1;
  if (parts.size() == 3 && (!ParseNumber(parts[2], 1, &stride) || stride > 1024))
    return Unreadable(text, "whose stride must be 1 to 1024");
  band.stride = static_cast<int32_t>(stride);
  return band;
}

absl::Status AppendLayer(absl::string_view text, int64_t num_heads,
                         std::vector<kernels::Band>& bands) {
  const size_t end = bands.size() + static_cast<size_t>(num_heads);
  const std::vector<absl::string_view> groups = absl::StrSplit(text, '/');
  for (absl::string_view group : groups) {
    int64_t count = groups.size() == 1 ? num_heads : 1;
    const size_t times = group.find('x');
    if (times != absl::string_view::npos) {
      if (!ParseNumber(group.substr(0, times), 1, &count))
        return Unreadable(text, "where the number of heads before x is not positive");
      group.remove_prefix(times + 1);
    }
    ASSIGN_OR_RETURN(const kernels::Band band, ParseBand(group));
    if (bands.size() + static_cast<size_t>(count) > end)
      return Unreadable(text, absl::StrCat("for more than ", num_heads, " heads"));
    bands.insert(bands.end(), static_cast<size_t>(count), band);
  }
  if (bands.size() != end)
    return Unreadable(text, absl::StrCat("for fewer than ", num_heads, " heads"));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<kernels::Band>> SameLengthWindows(const ModelConfig& model) {
  if (model.mem_len < 1) {
    return InvalidArgument(
        "model.same_length is on but model.mem_len, the number of keys to see, is ", model.mem_len);
  }
  // The row itself is one of mem_len keys in PyTorch's code, and comes on top of them in
  // TensorFlow's.
  const int64_t left = model.mem_len - (model.same_length == SameLength::kTorch ? 1 : 0);
  return std::vector<kernels::Band>(static_cast<size_t>(model.num_layers * model.num_heads),
                                    kernels::Band{static_cast<int32_t>(left), -1, 1});
}

}  // namespace

absl::StatusOr<std::vector<kernels::Band>> AttentionWindows(const ModelConfig& model) {
  std::vector<kernels::Band> bands;
  if (model.num_layers < 1 || model.num_heads < 1) return bands;
  const absl::string_view text = absl::StripAsciiWhitespace(model.attention_windows);
  if (model.same_length != SameLength::kOff) {
    if (text.empty()) return SameLengthWindows(model);
    return InvalidArgument(
        "model.same_length and model.attention_windows are both set; use one of them");
  }
  if (text.empty()) return bands;
  const std::vector<absl::string_view> layers = absl::StrSplit(text, ';');
  if (layers.size() != 1 && std::ssize(layers) != model.num_layers) {
    return InvalidArgument("model.attention_windows names ", layers.size(),
                           " layers but must name one for all or ", model.num_layers);
  }
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const auto index = layers.size() == 1 ? size_t{0} : static_cast<size_t>(layer);
    RETURN_IF_ERROR(AppendLayer(layers[index], model.num_heads, bands));
  }
  const bool unlimited = std::all_of(bands.begin(), bands.end(),
                                     [](const kernels::Band& band) { return band.unlimited(); });
  if (unlimited) bands.clear();
  return bands;
}

}  // namespace anyorder
