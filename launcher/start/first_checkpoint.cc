#include "launcher/start/first_checkpoint.h"

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "ckpt/commit.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "core/train/run/ledger.h"

namespace anyorder::launcher {

absl::Status SaveFirstCheckpoint(const RunDirectory& paths, const std::string& run_id,
                                 const ParameterLayout& layout, const float* master,
                                 const TrainMetadata& metadata) {
  ANYORDER_CHECK(metadata.is_imported()) << "weights that have a run already";
  const int64_t elements = layout.num_elements();
  // Fresh memory that is only read stays one page of zeros, so that this costs nothing for a large
  // model.
  const std::unique_ptr<float, decltype(&std::free)> zeros(
      static_cast<float*>(std::calloc(static_cast<size_t>(elements), sizeof(float))), &std::free);
  if (zeros == nullptr)
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", elements, " zeros; import on a machine with more"));
  std::vector<ckpt::TensorRange> ranges;
  for (const auto& [name, values] : {std::pair<const char*, const float*>{"master", master},
                                     {"adam_m", zeros.get()},
                                     {"adam_v", zeros.get()}}) {
    ranges.push_back({name, DType::kFloat32, Shape{elements}, 0, elements, values});
  }
  // Before the first start, which is attempt 1.
  const ckpt::SaveIdentity id = {run_id, 0, 0, 0, 1, 1};
  return ckpt::SaveDirectly(paths.root, id, ranges, SerializeMetadata(metadata, layout));
}

absl::Status RecordImport(const RunDirectory& paths, const std::string& run_id,
                          const std::string& source) {
  ANYORDER_ASSIGN_OR_RETURN(Ledger ledger, Ledger::Open(paths.ledger));
  ANYORDER_RETURN_IF_ERROR(ledger.Append(ledger::Created{run_id, ""}));
  ANYORDER_RETURN_IF_ERROR(ledger.Append(ledger::Imported{source}));
  // From here on the run has a checkpoint to lose: a start that does not find it fails, rather than
  // begin at random weights.
  ledger::Commit commit;
  commit.step = 0;
  commit.generation = 0;
  return ledger.Append(commit);
}

}  // namespace anyorder::launcher
