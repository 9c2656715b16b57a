#include "launcher/texts/json_lines.h"

#include <cstdio>

#include "absl/strings/str_cat.h"

#include "core/base/json_members.h"
#include "core/base/log.h"
#include "core/base/status.h"

namespace anyorder::launcher {

absl::StatusOr<JsonLines> JsonLines::Open(const std::string& path, const std::string& option) {
  if (path.empty() || path == "-") return JsonLines(path, nullptr);
  ASSIGN_OR_RETURN(std::unique_ptr<NewFile> file, NewFile::Create(path, option));
  return JsonLines(path, std::move(file));
}

JsonLines::~JsonLines() {
  if (file_ == nullptr || !has_lines_) return;
  LogWarning(absl::StrCat(path_, " was not made; the lines that were done are in ", file_->Keep()));
}

absl::Status JsonLines::Write(const nlohmann::ordered_json& object) {
  return WriteText(DumpJson(object) + "\n");
}

absl::Status JsonLines::WriteText(const std::string& text) {
  if (path_.empty()) return absl::OkStatus();
  has_lines_ = true;
  if (file_ != nullptr) return file_->Append(text);
  const bool is_written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  return is_written ? absl::OkStatus() : ErrnoStatus("write", path_);
}

absl::Status JsonLines::Close() {
  if (file_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(file_->Publish());
  file_.reset();
  return absl::OkStatus();
}

}  // namespace anyorder::launcher
