#include "launcher/texts/json_lines.h"

#include <unistd.h>

#include <cerrno>

#include "core/base/status.h"
#include "launcher/texts/request_json.h"

namespace anyorder::launcher {

absl::StatusOr<JsonLines> JsonLines::Open(const std::string& path, const std::string& option) {
  if (path.empty()) return JsonLines(path, nullptr);
  if (path == "-") return JsonLines(path, stdout);
  std::FILE* const file = std::fopen(path.c_str(), "wxe");  // not one that is there
  if (file != nullptr) return JsonLines(path, file);
  if (errno != EEXIST) return ErrnoStatus("make", path);
  return AlreadyExists("'", path, "' exists and is not overwritten; name another ", option);
}

JsonLines::~JsonLines() {
  if (file_ == nullptr || file_ == stdout) return;
  std::fclose(file_);
  if (!has_lines_) ::unlink(path_.c_str());
}

JsonLines::JsonLines(JsonLines&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, nullptr)),
      has_lines_(other.has_lines_) {}

absl::Status JsonLines::Write(const nlohmann::ordered_json& object) {
  return WriteText(JsonText(object) + "\n");
}

absl::Status JsonLines::WriteText(const std::string& text) {
  if (path_.empty()) return absl::OkStatus();
  has_lines_ = true;
  const bool is_written =
      std::fwrite(text.data(), 1, text.size(), file_) == text.size() && std::fflush(file_) == 0;
  return is_written ? absl::OkStatus() : ErrnoStatus("write", path_);
}

absl::Status JsonLines::Close() {
  std::FILE* const file = std::exchange(file_, nullptr);
  if (file == nullptr || file == stdout || std::fclose(file) == 0) return absl::OkStatus();
  return ErrnoStatus("write", path_);
}

}  // namespace anyorder::launcher
