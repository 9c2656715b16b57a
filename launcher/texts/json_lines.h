// A file of JSON objects, one a line, that are written while they are computed. It appears whole;
// after an error its lines stay under another name, which is logged, and one without a line is
// removed.

#pragma once

#include <nlohmann/json.hpp>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "launcher/process/new_files.h"

namespace anyorder::launcher {

class JsonLines {
 public:
  // `option` named it. "-": standard output; "": nowhere. AlreadyExists for a file that is there.
  static absl::StatusOr<JsonLines> Open(const std::string& path,
                                        const std::string& option = "--output");
  ~JsonLines();
  JsonLines(JsonLines&& other) = default;
  JsonLines& operator=(JsonLines&&) = delete;

  // The line is written when this returns. Bytes that are not UTF-8 become U+FFFD.
  absl::Status Write(const nlohmann::ordered_json& object);
  // Writes any text.
  absl::Status WriteText(const std::string& text);
  // The last call: the file has its name when this returns.
  absl::Status Close();

 private:
  JsonLines(std::string path, std::unique_ptr<NewFile> file)
      : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  std::unique_ptr<NewFile> file_;  // null once closed, and of standard output and nowhere
  bool has_lines_ = false;
};

}  // namespace anyorder::launcher
