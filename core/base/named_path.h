// Paths that a user writes in any way, "runs/a/", "." and "..", and what is there.

#pragma once

#include <string>

namespace anyorder {

// The same place by a path whose last part is a name: "runs/a" of "runs/a/." and of itself, an
// absolute one of "", "." and what ends in "..". A link keeps its own name; "/" has none.
std::string NamedPath(const std::string& path);
// That last part; of "/" itself.
std::string PlaceName(const std::string& path);

// Whether anything, a file or a directory is there, links followed. False where that cannot be
// known.
bool IsThere(const std::string& path);
bool IsFile(const std::string& path);
bool IsDirectory(const std::string& path);

}  // namespace anyorder
