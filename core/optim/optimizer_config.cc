#include "core/optim/optimizer_config.h"

namespace anyorder {

absl::Status OptimizerConfig::Validate() const {
  FaultList faults;
  CheckBounds("optimizer", *this, faults);
  return faults.empty() ? absl::OkStatus() : absl::InvalidArgumentError(faults.Joined());
}

}  // namespace anyorder
