// Losses of heads on the CPU (kernels/head_loss.h), in double: next to the layers below, their few
// logits cost nothing.

#pragma once

#include "kernels/head_loss.h"

namespace anyorder::kernels::cpu {

void HeadLoss(const HeadLossArgs& args, int num_threads);

}  // namespace anyorder::kernels::cpu
