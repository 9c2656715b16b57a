#include "launcher/serve/stdio_server.h"

#include <poll.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "core/base/json_members.h"
#include "core/base/status.h"
#include "core/train/run/stop_signal.h"
#include "launcher/serve/answer.h"

namespace anyorder::launcher {
namespace {

constexpr int kStopCheckMs = 100;
constexpr size_t kReadBytes = 64 << 10;

absl::Status WriteAll(int fd, const std::string& text) {
  for (size_t written = 0; written < text.size();) {
    const ssize_t bytes = ::write(fd, text.data() + written, text.size() - written);
    if (bytes < 0 && errno != EINTR) return ErrnoStatus("write", "standard output");
    if (bytes > 0) written += static_cast<size_t>(bytes);
  }
  return absl::OkStatus();
}

}  // namespace

// A line that is there as a whole, or the last one, which no line end need follow.
std::optional<absl::StatusOr<std::string>> LineReader::CutLine() {
  const size_t end = buffer_.find('\n', searched_);
  const bool is_whole = end != buffer_.npos;
  searched_ = is_whole ? end + 1 : buffer_.size();
  if (!is_whole && buffer_.size() - begin_ > max_bytes_) {
    is_too_long_ = true;
    begin_ = buffer_.size();
  }
  if (!is_whole && (!is_at_end_ || (begin_ == buffer_.size() && !is_too_long_)))
    return std::nullopt;
  const absl::string_view line =
      absl::string_view(buffer_).substr(begin_, is_whole ? end - begin_ : buffer_.npos);
  begin_ = searched_;
  if (std::exchange(is_too_long_, false) || line.size() > max_bytes_)
    return OutOfRange("the line has more than ", max_bytes_, " bytes");
  return std::string(line);
}

absl::Status LineReader::Fill() {
  pollfd item = {fd_, POLLIN, 0};
  if (::poll(&item, 1, kStopCheckMs) <= 0) return absl::OkStatus();
  // Here no line is whole: what is moved is the beginning of one.
  buffer_.erase(0, begin_);
  searched_ -= std::exchange(begin_, 0);
  const size_t before = buffer_.size();
  buffer_.resize(before + kReadBytes);
  const ssize_t bytes = ::read(fd_, buffer_.data() + before, kReadBytes);
  buffer_.resize(before + (bytes > 0 ? static_cast<size_t>(bytes) : 0));
  if (bytes < 0 && errno != EINTR && errno != EAGAIN) return ErrnoStatus("read", "standard input");
  is_at_end_ = bytes == 0;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<absl::StatusOr<std::string>>> LineReader::Next(size_t most) {
  std::vector<absl::StatusOr<std::string>> lines;
  while (true) {
    const bool is_last = is_at_end_ || StopSignal() != 0;
    for (auto line = CutLine(); line; line = lines.size() < most ? CutLine() : std::nullopt)
      lines.push_back(*std::move(line));
    if (!lines.empty() || is_last) return lines;
    RETURN_IF_ERROR(Fill());
  }
}

absl::Status ServeLines(int input, int output, TextService& service, const RequestLimits& limits,
                        size_t max_line_bytes) {
  LineReader reader(input, max_line_bytes);
  while (true) {
    ASSIGN_OR_RETURN(const auto lines, reader.Next(static_cast<size_t>(limits.max_texts)));
    if (lines.empty()) return absl::OkStatus();
    const auto responses =
        Respond(service, lines, limits, StopSignal() == 0 ? absl::OkStatus() : StoppedError());
    std::string text;
    for (const nlohmann::ordered_json& response : responses)
      absl::StrAppend(&text, DumpJson(response), "\n");
    RETURN_IF_ERROR(WriteAll(output, text));
  }
}

}  // namespace anyorder::launcher
