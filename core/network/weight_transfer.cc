#include "core/network/weight_transfer.h"

#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "core/base/status.h"

namespace anyorder {
namespace {

constexpr char kPositions[] = "transformer.position_embedding.weight";

bool IsGlobal(absl::string_view name) { return absl::StrContains(name, ".global_"); }

std::string OtherShape(const ParameterInfo& from, const ParameterInfo& to) {
  return absl::StrCat(to.name, " is ", from.shape.ToString(), " in the old model and ",
                      to.shape.ToString(), " in the new one; only positions may be added");
}

class Planner {
 public:
  Planner(const std::vector<ParameterInfo>& from, NewPositions positions) : positions_(positions) {
    for (const ParameterInfo& info : from) old_[info.name] = &info;
  }

  void Fill(const ParameterInfo& to) {
    const ParameterInfo* source = Find(to.name);
    if (source == nullptr && IsGlobal(to.name)) {
      source = Find(absl::StrReplaceAll(to.name, {{".global_", "."}}));
      plan_.projections_copied += source != nullptr ? 1 : 0;
    }
    if (source == nullptr) {
      plan_.initialised.push_back(to.name);
      faults_.Require(IsHeadParameter(to.name),
                      absl::StrCat("the new model has ", to.name,
                                   ", which the old one does not; leave out the setting that adds "
                                   "it"));
    } else if (to.name == kPositions) {
      FillPositions(*source, to);
    } else if (source->shape == to.shape) {
      plan_.pieces.push_back({to.offset, to.end(), source->offset});
    } else {
      faults_.Add(OtherShape(*source, to));
    }
  }

  void LeaveOut(const ParameterInfo& info) {
    plan_.left_out.push_back(info.name);
    faults_.Require(IsHeadParameter(info.name) || IsGlobal(info.name),
                    absl::StrCat("the old model has ", info.name,
                                 ", which the new one does not; keep the setting that adds it"));
  }

  absl::StatusOr<TransferPlan> Plan() && {
    RETURN_IF_ERROR(faults_.ToStatus());
    return std::move(plan_);
  }

 private:
  const ParameterInfo* Find(const std::string& name) const {
    const auto found = old_.find(name);
    return found == old_.end() ? nullptr : found->second;
  }

  void FillPositions(const ParameterInfo& source, const ParameterInfo& to) {
    const int64_t before = source.shape[0];
    const int64_t after = to.shape[0];
    const int64_t dim = to.shape[1];
    if (source.shape.rank() != 2 || source.shape[1] != dim || after < before)
      return faults_.Add(OtherShape(source, to));
    plan_.positions_before = before;
    plan_.positions_after = after;
    for (int64_t row = 0; row < after; row += before) {
      if (row >= before && positions_ == NewPositions::kRandom) break;  // initial values
      const int64_t rows = std::min(before, after - row);
      plan_.pieces.push_back(
          {to.offset + row * dim, to.offset + (row + rows) * dim, source.offset});
    }
  }

  const NewPositions positions_;
  std::map<std::string, const ParameterInfo*> old_;
  FaultList faults_;
  TransferPlan plan_;
};

}  // namespace

absl::StatusOr<TransferPlan> PlanTransfer(const std::vector<ParameterInfo>& from,
                                          const ParameterLayout& to, NewPositions positions) {
  Planner planner(from, positions);
  for (const ParameterInfo& info : to.parameters()) planner.Fill(info);
  for (const ParameterInfo& info : from) {
    if (!to.Contains(info.name)) planner.LeaveOut(info);
  }
  return std::move(planner).Plan();
}

absl::Status ApplyTransfer(const TransferPlan& plan, int64_t begin, int64_t end, float* out,
                           ReadOld read) {
  for (const TransferPlan::Piece& piece : plan.pieces) {
    const int64_t first = std::max(begin, piece.begin);
    const int64_t last = std::min(end, piece.end);
    if (first >= last) continue;
    RETURN_IF_ERROR(
        read(piece.source + (first - piece.begin), last - first, out + (first - begin)));
  }
  return absl::OkStatus();
}

}  // namespace anyorder
