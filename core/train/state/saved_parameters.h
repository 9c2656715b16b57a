// Which parameters the weights in a checkpoint are: the table that SerializeMetadata writes. It is
// read, not computed, because it is another model's or may stem from another version of this
// program.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "ckpt/reader.h"
#include "core/network/tensors/parameters.h"

namespace anyorder {

// The checkpoint's tensor [parameters] of all weights in fp32.
inline constexpr char kMasterTensor[] = "master";

// Its length. FailedPrecondition if the checkpoint has none.
absl::StatusOr<int64_t> NumSavedParameters(const ckpt::Checkpoint& checkpoint);

// Names, shapes and offsets, one behind the other and together the whole of kMasterTensor; `init`
// and `decays` are not saved. FailedPrecondition, with the checkpoint's directory, for any other
// table.
absl::StatusOr<std::vector<ParameterInfo>> ReadSavedParameters(const ckpt::Checkpoint& checkpoint);

}  // namespace anyorder
