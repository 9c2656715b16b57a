// Says which kernel touched memory that it may not.

#pragma once

namespace anyorder::kernels::cuda::emulation {

// From now on an access of this thread to pages that are not open ends the program by Fail
// (block.h) if a kernel runs, in place of the system's bare signal. Where somebody else handles the
// signal, a sanitizer for example, that stays.
void ReportFaults();

}  // namespace anyorder::kernels::cuda::emulation
