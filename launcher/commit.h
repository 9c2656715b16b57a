// The commit that the program was built from.

#pragma once

namespace anyorder::launcher {

// As `git describe --always --dirty` names it; "unknown" outside a clone.
const char* Commit();

}  // namespace anyorder::launcher
