#include "launcher/inference/text_encoder.h"

#include <nlohmann/json.hpp>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "launcher/inference/prep_call.h"

namespace anyorder::launcher {
namespace {

using TokenLists = std::vector<std::vector<int32_t>>;

constexpr char kEncoder[] = "anyorder-prep";
constexpr absl::Duration kEndPatience = absl::Seconds(5);
constexpr int kDeadlineCheckMs = 1000;
constexpr size_t kReceiveBytes = 64 << 10;
constexpr size_t kMaxErrorBytes = 64 << 10;

// A JSON object a text, each in a line: JSON has no line end inside a string.
absl::StatusOr<std::string> LinesOf(const std::vector<std::string>& texts,
                                    absl::string_view doing) {
  std::string lines;
  for (size_t n = 0; n < texts.size(); ++n) {
    // The child would refuse it, too, and end.
    const size_t nul = texts[n].find('\0');
    if (nul != std::string::npos) {
      return FailedPrecondition(doing, ": byte ", nul, " of text ", n + 1, " is NUL; remove it");
    }
    const nlohmann::json line({{"text", texts[n]}});
    absl::StrAppend(&lines, line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                    "\n");
  }
  return lines;
}

absl::StatusOr<TokenLists> ParseIds(const std::string& text, size_t num_texts) {
  TokenLists texts;
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  lines.pop_back();  // behind the last line end
  for (const absl::string_view line : lines) {
    texts.emplace_back();
    for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
      int32_t id = -1;
      if (!absl::SimpleAtoi(word, &id))
        return Internal(kEncoder, " wrote '", word, "' for a token id");
      texts.back().push_back(id);
    }
  }
  if (texts.size() == num_texts) return texts;
  return Internal(kEncoder, " encoded ", texts.size(), " of ", num_texts, " texts");
}

std::string ReadErrors(int fd) {
  std::string text(kMaxErrorBytes, '\0');
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

}  // namespace

TextEncoder::TextEncoder(std::string vocabulary, std::string letter_case, absl::Duration patience)
    : vocabulary_(std::move(vocabulary)),
      letter_case_(std::move(letter_case)),
      patience_(patience) {}

TextEncoder::~TextEncoder() {
  if (child_) End(MonotonicNow() + kEndPatience);
}

absl::Status TextEncoder::Start() {
  int ends[2];
  // Not two pipes: MSG_NOSIGNAL, which prevents SIGPIPE, works only with sockets.
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return ErrnoStatus("socketpair", kEncoder);
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  UniqueFd errors(::memfd_create("anyorder-prep-errors", MFD_CLOEXEC));
  if (!errors.valid()) return ErrnoStatus("memfd_create", kEncoder);
  SpawnOptions spawn;
  spawn.arguments = {PrepProgram(), "encode",  "--vocab", vocabulary_, "--case",
                     letter_case_,  "--input", "-",       "--output",  "-"};
  spawn.input_fd = theirs.get();
  spawn.output_fd = theirs.get();
  spawn.error_fd = errors.get();
  spawn.closes_others = true;
  // Ctrl-C is for this process to decide on.
  spawn.own_session = true;
  // The end of its input ends it, too, but not before a long text is encoded.
  spawn.death_signal = SIGTERM;
  ANYORDER_ASSIGN_OR_RETURN(child_, ChildProcess::Spawn(spawn));
  socket_ = std::move(ours);
  errors_ = std::move(errors);
  return absl::OkStatus();
}

bool TextEncoder::Receive(std::string* answers) {
  char block[kReceiveBytes];
  const ssize_t got = ::recv(socket_.get(), block, sizeof block, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  answers->append(block, static_cast<size_t>(got));
  return got > 0;
}

// Neither process waits for the other to read: this one sends only what the socket takes, and reads
// meanwhile.
absl::StatusOr<std::string> TextEncoder::Exchange(absl::string_view lines, size_t num_lines,
                                                  absl::string_view doing) {
  const absl::Time deadline = MonotonicNow() + patience_;
  std::string answers;
  for (size_t num_answers = 0; num_answers < num_lines;) {
    if (MonotonicNow() > deadline) {
      End(MonotonicNow());
      return DeadlineExceeded(doing, ": ", kEncoder, " did not answer within ",
                              absl::FormatDuration(patience_));
    }
    pollfd item = {socket_.get(), POLLIN, 0};
    if (!lines.empty()) item.events |= POLLOUT;
    if (::poll(&item, 1, kDeadlineCheckMs) <= 0) continue;
    if ((item.revents & POLLOUT) != 0) {
      const ssize_t sent =
          ::send(socket_.get(), lines.data(), lines.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      // If there is no reader any more, Receive tells.
      if (sent > 0) lines.remove_prefix(static_cast<size_t>(sent));
    }
    if ((item.revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
    const auto known = static_cast<std::ptrdiff_t>(answers.size());
    if (!Receive(&answers)) return PrepError(End(MonotonicNow() + kEndPatience), doing);
    num_answers += static_cast<size_t>(std::count(answers.begin() + known, answers.end(), '\n'));
  }
  return answers;
}

CapturedOutput TextEncoder::End(absl::Time deadline) {
  socket_ = UniqueFd();  // the end of its input
  CapturedOutput output;
  output.is_late = !AwaitEnd(*child_, deadline);
  output.exit_status = *child_->Poll();
  output.text = ReadErrors(errors_.get());
  child_.reset();
  errors_ = UniqueFd();
  return output;
}

absl::StatusOr<TokenLists> TextEncoder::Encode(const std::vector<std::string>& texts,
                                               absl::string_view doing) {
  ANYORDER_ASSIGN_OR_RETURN(const std::string lines, LinesOf(texts, doing));
  if (texts.empty()) return TokenLists();
  // Of a child that ended while it had nothing to do, nothing is lost.
  if (child_ && child_->Poll()) End(MonotonicNow());
  if (!child_) ANYORDER_RETURN_IF_ERROR(Start());
  ANYORDER_ASSIGN_OR_RETURN(const std::string answers, Exchange(lines, texts.size(), doing));
  absl::StatusOr<TokenLists> ids = ParseIds(answers, texts.size());
  // What else it has written would be taken for the next answers.
  if (!ids.ok()) End(MonotonicNow());
  return ids;
}

}  // namespace anyorder::launcher
