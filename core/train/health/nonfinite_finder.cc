#include "core/train/health/nonfinite_finder.h"

#include <cmath>

#include "absl/strings/str_cat.h"

#include "core/base/counted.h"
#include "core/base/status.h"
#include "kernels/adamw.h"

namespace anyorder {
namespace {

using kernels::NormControl;

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
                                                                         int64_t num_windows,
                                                                         int64_t micro_batch_size,
                                                                         int64_t num_leaves) {
  std::unique_ptr<NonfiniteFinder> finder(new NonfiniteFinder(backend, micro_batch_size));
  // Each window has blocks of its own, the last of them short.
  const int64_t blocks = num_elements / kernels::kNormBlockElements + num_windows;
  ASSIGN_OR_RETURN(finder->memory_of_sums_,
                   backend.Allocate(blocks * static_cast<int64_t>(sizeof(double))));
  finder->block_sums_ = TensorView(static_cast<double*>(finder->memory_of_sums_->data()), {blocks});
  ASSIGN_OR_RETURN(finder->norms_,
                   backend.Allocate(num_leaves * static_cast<int64_t>(sizeof(NormControl))));
  backend.FillZero(
      TensorView(finder->norms_->data(), DType::kUint8, {finder->norms_->size_bytes()}),
      StreamView{});
  return finder;
}

void NonfiniteFinder::Clear() {
  loss_.clear();
  examined_.clear();
  memory_.clear();
  num_sums_ = 0;
}

void NonfiniteFinder::ExamineWindow(ConstTensorView window) {
  const int64_t blocks =
      (window.num_elements() + kernels::kNormBlockElements - 1) / kernels::kNormBlockElements;
  backend_.SumOfSquares(window, block_sums_.Slice(num_sums_, {blocks}), StreamView{});
  num_sums_ += blocks;
}

void NonfiniteFinder::EndLeaf(int64_t leaf, double loss) {
  if (!std::isfinite(loss))
    AddLanes(loss_, {leaf * micro_batch_size_, (leaf + 1) * micro_batch_size_});
  kernels::ComputeGradientClipArgs args;
  args.sums = block_sums_.Slice(0, {num_sums_});
  args.control = static_cast<NormControl*>(norms_->data()) + examined_.size();
  backend_.ComputeGradientClip(args, StreamView{});
  examined_.push_back(leaf);
  num_sums_ = 0;
}

std::vector<dist::Range> NonfiniteFinder::GradientLanes() {
  std::vector<dist::Range> found;
  std::vector<NormControl> norms(examined_.size());
  if (norms.empty()) return found;
  backend_.CopyToHost(norms_->data(), norms.data(),
                      static_cast<int64_t>(norms.size() * sizeof(NormControl)), StreamView{});
  backend_.Synchronize(StreamView{});
  for (size_t i = 0; i < norms.size(); ++i) {
    // Squares of floats do not overflow a double, so that a norm is finite exactly if all elements
    // are.
    if (std::isfinite(norms[i].norm)) continue;
    AddLanes(found, {examined_[i] * micro_batch_size_, (examined_[i] + 1) * micro_batch_size_});
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
