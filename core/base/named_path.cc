#include "core/base/named_path.h"

#include <filesystem>

namespace anyorder {

namespace fs = std::filesystem;

std::string NamedPath(const std::string& path) {
  fs::path place = path.empty() ? "." : path;
  while ((place.filename().empty() || place.filename() == ".") && place.has_parent_path() &&
         place.has_relative_path())
    place = place.parent_path();
  if (place.filename() != "." && place.filename() != "..") return place.string();
  // The system's way: what follows a link's ".." is not what stands before the link.
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(fs::absolute(place, error), error);
  if (error) return path;
  return whole.has_filename() ? whole : whole.parent_path();
}

std::string PlaceName(const std::string& path) {
  const fs::path place = NamedPath(path);
  return place.has_filename() ? place.filename() : place;
}

static fs::file_status StatusOf(const std::string& path) {
  std::error_code unknown;
  return fs::status(path, unknown);
}

bool IsThere(const std::string& path) { return fs::exists(StatusOf(path)); }
bool IsFile(const std::string& path) { return fs::is_regular_file(StatusOf(path)); }
bool IsDirectory(const std::string& path) { return fs::is_directory(StatusOf(path)); }

}  // namespace anyorder
