// For host code that needs the sizes of what kernels write, and no kernel.

#pragma once

#include <cmath>

#define ANYORDER_DEVICE inline
#define ANYORDER_HOST_DEVICE inline
#define ANYORDER_UNROLL
