#include "core/network/weight_transfer.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "core/base/status.h"

namespace anyorder {
namespace {

constexpr char kPositions[] = "transformer.position_embedding.weight";

bool IsGlobal(absl::string_view name) {
  return absl::StrContains(name, ".global_");
}

class Transfer {
 public:
  Transfer(const std::vector<ParameterInfo>& from, const float* values, float* out)
      : from_(from), values_(values), out_(out) {}

  absl::Status Fill(const ParameterInfo& to, const TransferOptions& options) {
    const ParameterInfo* source = Find(to.name);
    if (source == nullptr && IsGlobal(to.name)) {
      source = Find(absl::StrReplaceAll(to.name, {{".global_", "."}}));
      summary_.projections_copied += source != nullptr ? 1 : 0;
    }
    if (source == nullptr && IsHeadParameter(to.name)) {
      summary_.drawn.push_back(to.name);
      return absl::OkStatus();  // at its initial value
    }
    if (source == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("the new model has ", to.name,
                                                     ", which the old one does not; leave out "
                                                     "the setting that adds it"));
    }
    if (to.name == kPositions) return FillPositions(*source, to, options);
    if (!(source->shape == to.shape)) return OtherShape(*source, to);
    std::copy_n(values_ + source->offset, to.shape.num_elements(), out_ + to.offset);
    return absl::OkStatus();
  }

  absl::Status LeaveOut(const ParameterLayout& to) {
    for (const ParameterInfo& info : from_) {
      if (to.Contains(info.name)) continue;
      if (!IsHeadParameter(info.name) && !IsGlobal(info.name)) {
        return absl::InvalidArgumentError(
            absl::StrCat("the old model has ", info.name,
                         ", which the new one does not; keep the setting that adds it"));
      }
      summary_.left_out.push_back(info.name);
    }
    return absl::OkStatus();
  }

  TransferSummary summary() && { return std::move(summary_); }

 private:
  const ParameterInfo* Find(absl::string_view name) const {
    const auto found = std::find_if(from_.begin(), from_.end(),
                                    [name](const ParameterInfo& x) { return x.name == name; });
    return found == from_.end() ? nullptr : &*found;
  }

  static absl::Status OtherShape(const ParameterInfo& from, const ParameterInfo& to) {
    return absl::InvalidArgumentError(absl::StrCat(to.name, " is ", from.shape.ToString(),
                                                   " in the old model and ", to.shape.ToString(),
                                                   " in the new one; only positions may be added"));
  }

  absl::Status FillPositions(const ParameterInfo& source, const ParameterInfo& to,
                             const TransferOptions& options) {
    const int64_t before = source.shape[0];
    const int64_t after = to.shape[0];
    const int64_t dim = to.shape[1];
    if (source.shape[1] != dim || after < before) return OtherShape(source, to);
    summary_.positions_before = before;
    summary_.positions_after = after;
    for (int64_t row = 0; row < after; ++row) {
      if (row >= before && options.positions == NewPositions::kRandom) break;  // initial values
      std::copy_n(values_ + source.offset + row % before * dim, dim, out_ + to.offset + row * dim);
    }
    return absl::OkStatus();
  }

  const std::vector<ParameterInfo>& from_;
  const float* values_;
  float* out_;
  TransferSummary summary_;
};

}  // namespace

absl::StatusOr<TransferSummary> TransferWeights(const std::vector<ParameterInfo>& from,
                                                const float* values, const ModelConfig& model,
                                                const ParameterLayout& to,
                                                const TransferOptions& options, float* out) {
  InitializeParameters(to, model, options.seed, 0, to.num_elements(), out);
  Transfer transfer(from, values, out);
  for (const ParameterInfo& info : to.parameters())
    ANYORDER_RETURN_IF_ERROR(transfer.Fill(info, options));
  ANYORDER_RETURN_IF_ERROR(transfer.LeaveOut(to));
  return std::move(transfer).summary();
}

}  // namespace anyorder
