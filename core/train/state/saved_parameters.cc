#include "core/train/state/saved_parameters.h"

#include <nlohmann/json.hpp>

#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"

namespace anyorder {
namespace {

using Json = nlohmann::json;

absl::Status Unreadable(const ckpt::Checkpoint& checkpoint) {
  return absl::FailedPreconditionError(
      absl::StrCat(checkpoint.directory(),
                   " has no table of parameters that can be read and fits its weights; name "
                   "another checkpoint"));
}

// A shape of 1 to 3 dimensions whose elements `room` holds; nothing for anything else. REQUIRES:
// room >= 0.
std::optional<Shape> ParseShape(const Json& written, int64_t room) {
  if (!written.is_array() || written.empty() || written.size() > 3) return std::nullopt;
  std::array<int64_t, 3> dims = {1, 1, 1};
  for (size_t i = 0; i < written.size(); ++i) {
    if (!written[i].is_number_unsigned()) return std::nullopt;
    const uint64_t dim = written[i].get<uint64_t>();
    // The room shrinks by what there is already, so no product can overflow.
    if (dim < 1 || dim > static_cast<uint64_t>(room)) return std::nullopt;
    dims[i] = static_cast<int64_t>(dim);
    room /= dims[i];
  }
  if (written.size() == 1) return Shape{dims[0]};
  if (written.size() == 2) return Shape{dims[0], dims[1]};
  return Shape{dims[0], dims[1], dims[2]};
}

// An entry of the table that begins at `offset`.
std::optional<ParameterInfo> ParseEntry(const Json& entry, int64_t offset, int64_t num_elements) {
  const bool is_whole = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                        entry.contains("offset") && entry["offset"].is_number_unsigned() &&
                        entry.contains("shape");
  if (!is_whole || entry["offset"].get<uint64_t>() != static_cast<uint64_t>(offset))
    return std::nullopt;
  const std::optional<Shape> shape = ParseShape(entry["shape"], num_elements - offset);
  if (!shape) return std::nullopt;
  ParameterInfo info;
  info.name = entry["name"].get<std::string>();
  info.offset = offset;
  info.shape = *shape;
  return info;
}

}  // namespace

absl::StatusOr<int64_t> NumSavedParameters(const ckpt::Checkpoint& checkpoint) {
  for (const ckpt::TensorInfo& info : checkpoint.tensors()) {
    if (info.name == kMasterTensor && info.dtype == DType::kFloat32 && info.shape.rank() == 1)
      return info.shape.num_elements();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      checkpoint.directory(), " holds no fp32 tensor 'master': not a training checkpoint"));
}

absl::StatusOr<std::vector<ParameterInfo>> ReadSavedParameters(const ckpt::Checkpoint& checkpoint) {
  ANYORDER_ASSIGN_OR_RETURN(const int64_t num_elements, NumSavedParameters(checkpoint));
  const Json json = Json::parse(checkpoint.metadata_json(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("parameters") || !json["parameters"].is_array())
    return Unreadable(checkpoint);
  std::vector<ParameterInfo> parameters;
  int64_t offset = 0;
  for (const Json& entry : json["parameters"]) {
    std::optional<ParameterInfo> info = ParseEntry(entry, offset, num_elements);
    if (!info) return Unreadable(checkpoint);
    offset = info->end();
    parameters.push_back(*std::move(info));
  }
  if (offset != num_elements) return Unreadable(checkpoint);
  return parameters;
}

}  // namespace anyorder
