// Operations that every backend whose memory is the host's computes alike.

#pragma once

#include "kernels/operation.h"

namespace anyorder::kernels {

void ComputeGradientClipOnHost(const ComputeGradientClipArgs& args);
void DigestOnHost(const DigestArgs& args);

}  // namespace anyorder::kernels
