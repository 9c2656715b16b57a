// What a process asks of its files: the C library's calls, counted by name. Nothing goes past it,
// so that it sees what product code does without the seam of core/base/file_system.h, too.

#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace anyorder::testing {

// What a file system of many clients does for each of these differs most.
enum class FileCall {
  kOpen,  // or creates
  kName,  // asks for, makes, renames, removes, or lists a name
  kSync,
  kData,  // reads, writes, reserves
};

// Calls on one name, whose numbers are "#" ("checkpoints/step-#/rank-#-of-#.safetensors"), beneath
// the directory that is watched.
using FileCallCounts = std::map<std::pair<FileCall, std::string>, int64_t>;

// From now on counts calls on names beneath `directory`, in all threads; "" ends it. Names that are
// mapped into memory are counted when they are opened.
void CountFileCalls(const std::string& directory);
// What was counted since the last call of either function.
FileCallCounts TakeFileCalls();

}  // namespace anyorder::testing
