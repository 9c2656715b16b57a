#include "launcher/huggingface/saved_step.h"

#include <filesystem>
#include <system_error>

#include "core/base/status.h"

namespace anyorder::launcher {
namespace {

// Damage of any part counts, also of tensors that the caller does not read, as it does when the
// newest good one is looked for.
absl::StatusOr<ckpt::Checkpoint> OpenWhole(const std::string& directory) {
  absl::StatusOr<ckpt::Checkpoint> checkpoint = ckpt::Checkpoint::Open(directory);
  absl::Status status = checkpoint.status();
  std::error_code error;
  if (absl::IsNotFound(status) && std::filesystem::exists(directory, error))
    status = absl::DataLossError(status.message());
  if (status.ok()) status = checkpoint->Verify();
  if (status.ok()) return checkpoint;
  if (absl::IsNotFound(status)) {
    return InvalidArgument(
        "--step: ", status.message(),
        "; `anyorder status` lists the run's, or leave --step out for the newest valid one");
  }
  if (!absl::IsDataLoss(status)) return status;
  return DataLoss(status.message(),
                  "; name another step, or leave --step out for the newest valid one");
}

}  // namespace

absl::StatusOr<ckpt::Checkpoint> OpenSavedStep(const std::string& run_dir, int64_t step) {
  if (step >= 0) return OpenWhole(ckpt::CheckpointPath(run_dir, step));
  const absl::StatusOr<std::string> directory =
      ckpt::FindNewestGood(run_dir, /*quarantine_bad=*/false);
  if (absl::IsNotFound(directory.status())) return FailedPrecondition(directory.status().message());
  ANYORDER_RETURN_IF_ERROR(directory.status());
  return ckpt::Checkpoint::Open(*directory);
}

}  // namespace anyorder::launcher
