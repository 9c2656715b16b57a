#include "core/optim/optimizer_config.h"

namespace anyorder {

absl::Status OptimizerConfig::Validate() const {
  FaultList faults;
  CheckBounds("optimizer", *this, faults);
  return faults.ToStatus();
}

}  // namespace anyorder
