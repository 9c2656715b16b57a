#include "data/dataset/dataset_directory.h"

#include <filesystem>
#include <system_error>

#include "core/base/status.h"
#include "data/dataset/shard_format.h"

namespace anyorder::data {

absl::Status CheckIsDataset(absl::string_view what, const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status found = fs::status(directory, error);
  const bool has_index = !error && fs::exists(absl::StrCat(directory, "/", kIndexFile), error);
  std::string why;
  if (found.type() == fs::file_type::not_found) {
    why = "does not exist";
  } else if (error == std::errc::permission_denied ||
             error == std::errc::too_many_symbolic_link_levels) {
    why = absl::StrCat("cannot be read (", error.message(), ")");
  } else if (has_index || error) {
    return absl::OkStatus();  // a disk that fails is for the reader to report
  } else if (!fs::is_directory(found)) {
    why = "is not a directory";
  } else {
    why = fs::exists(directory + "/config.toml", error) ? "is a run directory"
                                                        : absl::StrCat("holds no ", kIndexFile);
  }
  return InvalidArgument(what, " '", directory, "' ", why,
                         "; name a directory that `anyorder prep --output` wrote");
}

}  // namespace anyorder::data
