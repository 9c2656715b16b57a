#include "core/train/health/nonfinite_finder.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

#include "core/base/counted.h"
#include "core/base/status.h"
#include "core/network/tensors/host_copy.h"

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
    absl::StrAppend(&text, text.empty() ? "" : ", ", what,
                    lanes.size() == 1 ? " of lane " : " of lanes ",
                    RangeText(lanes.begin, lanes.end - 1));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<NonfiniteFinder>> NonfiniteFinder::Create(kernels::Backend& backend,
                                                                         int64_t num_elements,
                                                                         int64_t micro_batch_size,
                                                                         dist::Range leaves) {
  std::unique_ptr<NonfiniteFinder> finder(
      new NonfiniteFinder(backend, num_elements, micro_batch_size, leaves));
  const int64_t blocks =
      (num_elements + kernels::kNormBlockElements - 1) / kernels::kNormBlockElements;
  ASSIGN_OR_RETURN(finder->memory_of_sums_,
                   backend.Allocate(leaves.size() * blocks * static_cast<int64_t>(sizeof(double))));
  finder->block_sums_ =
      TensorView(static_cast<double*>(finder->memory_of_sums_->data()), {leaves.size(), blocks});
  return finder;
}

void NonfiniteFinder::Clear() {
  loss_.clear();
  examined_.clear();
  memory_.clear();
}

void NonfiniteFinder::Examine(int64_t leaf, double loss, const float* gradient) {
  if (!std::isfinite(loss))
    AddLanes(loss_, {leaf * micro_batch_size_, (leaf + 1) * micro_batch_size_});
  const int64_t blocks = block_sums_.dim(1);
  backend_.SumOfSquares(ConstTensorView(gradient, {num_elements_}),
                        block_sums_.Slice((leaf - first_leaf_) * blocks, {blocks}), StreamView{});
  examined_.push_back(leaf);
}

std::vector<dist::Range> NonfiniteFinder::GradientLanes() {
  std::vector<dist::Range> found;
  if (examined_.empty()) return found;
  HostCopy sums;
  sums.Fetch(block_sums_, backend_, StreamView{});
  backend_.Synchronize(StreamView{});
  const int64_t blocks = block_sums_.dim(1);
  for (const int64_t leaf : examined_) {
    const double* const own = sums.view().data<double>() + (leaf - first_leaf_) * blocks;
    // Squares of floats do not overflow a double, so that a sum is finite exactly if all its
    // elements are.
    if (std::all_of(own, own + blocks, [](double sum) { return std::isfinite(sum); })) continue;
    AddLanes(found, {leaf * micro_batch_size_, (leaf + 1) * micro_batch_size_});
  }
  return found;
}

NonfiniteFindings NonfiniteFinder::Gather(dist::Communicator& communicator) {
  std::string mine;
  Describe("loss", loss_, mine);
  Describe("gradient", GradientLanes(), mine);
  std::vector<dist::Range> memory;
  for (const int64_t lane : memory_) AddLanes(memory, {lane, lane + 1});
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
  findings.empty_lanes = communicator.AllGatherElements(memory_);
  return findings;
}

}  // namespace anyorder
