#include "data/prep/tokenizer_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "data/prep/socket_io.h"

namespace anyorder::data {
namespace {

constexpr char kPython[] = "python3";
constexpr timeval kPatience = {600, 0};
constexpr uint32_t kWhatTokensAre = ~uint32_t{0};  // in place of a number of texts

// What a reply begins with; tokenize_texts.py has the same numbers.
struct TokenizerReply {
  uint32_t kind;
  uint32_t bytes;  // that follow
};
enum TokenizerReplyKind : uint32_t { kReplyOk = 0, kReplyUnusable = 1, kReplyBadInput = 2 };

std::string HowItEnded(int status) {
  if (WIFSIGNALED(status)) return absl::StrCat("was ended by signal ", WTERMSIG(status));
  return absl::StrCat("ended with status ", WEXITSTATUS(status));
}

void AppendUint32(uint32_t value, std::string& out) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Reads a reply's payload from its beginning.
class PayloadReader {
 public:
  explicit PayloadReader(const std::string& payload) : payload_(payload) {}

  bool at_end() const { return at_ == payload_.size(); }
  bool Read(void* out, size_t bytes) {
    if (payload_.size() - at_ < bytes) return false;
    if (bytes > 0) std::memcpy(out, payload_.data() + at_, bytes);
    at_ += bytes;
    return true;
  }
  // A number of elements and these.
  template <typename List>
  bool ReadList(List& list) {
    uint32_t count = 0;
    if (!Read(&count, sizeof count) || (payload_.size() - at_) / sizeof(list[0]) < count)
      return false;
    list.resize(count);
    return Read(list.data(), count * sizeof(list[0]));
  }

 private:
  const std::string& payload_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TokenizerProcess>> TokenizerProcess::Start(
    const std::string& script, const std::string& tokenizer) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return ErrnoStatus("socketpair", kPython);
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO})
    ::setsockopt(ours.get(), SOL_SOCKET, option, &kPatience, sizeof kPatience);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
  // What Python prints there would break the one line that a failure is.
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  // Signals that this process blocks must end that one.
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  // Each worker of a preparation has a process; threads in it would compete.
  ::setenv("TOKENIZERS_PARALLELISM", "false", 1);
  std::string words[] = {kPython, script, tokenizer};
  char* const argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, kPython, &actions, &attributes, argv, environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT) {
    return Unavailable("there is no python3 in PATH, which '", tokenizer,
                       "' needs; install Python 3, then: python3 -m pip install tokenizers");
  }
  if (error != 0) return ErrnoStatus("start", kPython, error);
  theirs = UniqueFd();  // so that ours ends when that process does
  std::unique_ptr<TokenizerProcess> process(new TokenizerProcess(pid, std::move(ours)));
  RETURN_IF_ERROR(process->ReadReply().status());
  return process;
}

TokenizerProcess::~TokenizerProcess() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

absl::Status TokenizerProcess::Died() {
  const bool is_stuck = errno == EAGAIN;
  int status = 0;
  const pid_t pid = std::exchange(pid_, -1);
  // A process that only closed its end must not be waited for.
  if (pid > 0) ::kill(pid, SIGKILL);
  const bool has_ended = pid > 0 && ::waitpid(pid, &status, 0) > 0;
  return Unavailable("the python3 process that runs `tokenizers` ",
                     is_stuck    ? absl::StrCat("did not answer for ", kPatience.tv_sec, " s")
                     : has_ended ? HowItEnded(status)
                                 : "is gone",
                     "; try again, in `prep` with fewer --workers if memory is short");
}

absl::StatusOr<std::string> TokenizerProcess::Ask(const std::string& request) {
  if (!SendFully(socket_.get(), request.data(), request.size())) return Died();
  return ReadReply();
}

absl::StatusOr<std::string> TokenizerProcess::ReadReply() {
  TokenizerReply reply{};
  if (!ReadFully(socket_.get(), &reply, sizeof reply)) return Died();
  std::string payload(reply.bytes, '\0');
  if (!ReadFully(socket_.get(), payload.data(), payload.size())) return Died();
  switch (reply.kind) {
    case kReplyOk: return payload;
    case kReplyUnusable: return absl::UnavailableError(payload);
    case kReplyBadInput: return absl::DataLossError(payload);
    default: return Died();
  }
}

absl::StatusOr<std::vector<std::vector<int32_t>>> TokenizerProcess::Encode(
    absl::Span<const std::string> texts) {
  std::string request;
  AppendUint32(static_cast<uint32_t>(texts.size()), request);
  for (const std::string& text : texts) {
    AppendUint32(static_cast<uint32_t>(text.size()), request);
    request.append(text);
  }
  ASSIGN_OR_RETURN(const std::string reply, Ask(request));
  std::vector<std::vector<int32_t>> ids(texts.size());
  PayloadReader reader(reply);
  for (std::vector<int32_t>& list : ids)
    if (!reader.ReadList(list)) return Died();
  return ids;
}

absl::StatusOr<std::vector<std::string>> TokenizerProcess::Spellings() {
  std::string request;
  AppendUint32(kWhatTokensAre, request);
  ASSIGN_OR_RETURN(const std::string reply, Ask(request));
  std::vector<std::string> spellings;
  for (PayloadReader reader(reply); !reader.at_end();)
    if (!reader.ReadList(spellings.emplace_back())) return Died();
  return spellings;
}

absl::Status CheckTokenizerIds(const std::vector<int32_t>& ids, uint64_t vocab_size) {
  for (const int32_t id : ids) {
    if (static_cast<uint32_t>(id) < vocab_size) continue;
    return DataLoss("the tokenizer gave id ", static_cast<uint32_t>(id),
                    ", outside the vocabulary of ", vocab_size, " ids; pass --vocab-size");
  }
  return absl::OkStatus();
}

}  // namespace anyorder::data
