// Paths that a user writes in any way: "runs/a/", "." and "..".

#pragma once

#include <string>

namespace anyorder {

// The same place by a path whose last part is a name: "runs/a" of "runs/a/." and of itself, an
// absolute one of "", "." and what ends in "..". A link keeps its own name; "/" has none.
std::string NamedPath(const std::string& path);
// That last part; of "/" itself.
std::string PlaceName(const std::string& path);

}  // namespace anyorder
