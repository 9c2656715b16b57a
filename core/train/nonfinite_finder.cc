#include "core/train/nonfinite_finder.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace anyorder {
namespace {

void AddLanes(std::vector<dist::Range>& ranges, dist::Range lanes) {
  if (!ranges.empty() && ranges.back().end == lanes.begin) {
    ranges.back().end = lanes.end;
  } else {
    ranges.push_back(lanes);
  }
}

void Describe(const char* what, const std::vector<dist::Range>& ranges, std::string& text) {
  for (const dist::Range& lanes : ranges) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", what, " of lane");
    if (lanes.size() == 1) {
      absl::StrAppend(&text, " ", lanes.begin);
    } else {
      absl::StrAppend(&text, "s ", lanes.begin, " to ", lanes.end - 1);
    }
  }
}

}  // namespace

NonfiniteFinder::NonfiniteFinder(kernels::Backend& backend,
                                 int64_t num_elements,
                                 int64_t microbatch_lanes)
    : backend_(backend),
      num_elements_(num_elements),
      microbatch_lanes_(microbatch_lanes),
      block_sums_((num_elements + kernels::kNormBlockElements - 1) / kernels::kNormBlockElements) {}

void NonfiniteFinder::Clear() {
  loss_.clear();
  gradient_.clear();
  memory_.clear();
}

void NonfiniteFinder::Examine(int64_t leaf, double loss, const float* gradient) {
  const dist::Range lanes{leaf * microbatch_lanes_, (leaf + 1) * microbatch_lanes_};
  if (!std::isfinite(loss)) AddLanes(loss_, lanes);
  // Squares of floats do not overflow a double, so that a sum is finite exactly if all its elements are.
  backend_.SumOfSquares(ConstTensorView(gradient, {num_elements_}),
                        TensorView(block_sums_.data(), {static_cast<int64_t>(block_sums_.size())}),
                        StreamView{});
  for (const double sum : block_sums_) {
    if (std::isfinite(sum)) continue;
    AddLanes(gradient_, lanes);
    return;
  }
}

NonfiniteFindings NonfiniteFinder::Gather(dist::Communicator& communicator) const {
  std::string mine;
  Describe("loss", loss_, mine);
  Describe("gradient", gradient_, mine);
  std::vector<dist::Range> memory;
  for (const int64_t lane : memory_)
    AddLanes(memory, {lane, lane + 1});
  Describe("memory", memory, mine);
  if (!mine.empty())
    mine = absl::StrCat("rank ", communicator.rank(), " on ", communicator.host(), ": ", mine);

  NonfiniteFindings findings;
  const std::vector<std::string> texts = communicator.AllGatherStrings(mine);
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty()) continue;
    if (findings.rank < 0) findings.rank = static_cast<int>(rank);
    absl::StrAppend(&findings.text, findings.text.empty() ? "" : "; ", texts[rank]);
  }
  const absl::Span<const char> bytes = dist::BytesOf<int64_t>(memory_);
  for (const std::string& lanes :
       communicator.AllGatherStrings(absl::string_view(bytes.data(), bytes.size()))) {
    const size_t first = findings.empty_lanes.size();
    findings.empty_lanes.resize(first + lanes.size() / sizeof(int64_t));
    if (!lanes.empty()) std::memcpy(&findings.empty_lanes[first], lanes.data(), lanes.size());
  }
  return findings;
}

}  // namespace anyorder
