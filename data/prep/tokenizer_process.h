// Hugging Face's `tokenizers` in a Python process of its own: texts go to tokenize_texts.py over a
// socket, ids come back. Python and the package are needed only where a tokenizer.json is used.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "core/base/unique_fd.h"

namespace anyorder::data {

class TokenizerProcess {
 public:
  // Starts `python3 SCRIPT TOKENIZER`, python3 being the first in PATH, and waits until it has
  // loaded the file `tokenizer`. It has a session of its own: the terminal's Ctrl-C is for this
  // process to decide on. Errors: Unavailable, with what to install, if there is no
  // python3 or no package `tokenizers` that is new enough, or if the process dies or does not
  // answer for ten minutes, after which it is killed; DataLoss if the package cannot load the file.
  static absl::StatusOr<std::unique_ptr<TokenizerProcess>> Start(const std::string& script,
                                                                 const std::string& tokenizer);
  // Ends the process.
  ~TokenizerProcess();
  // Whether it can be asked again. An error alone does not end it.
  bool is_alive() const { return pid_ >= 0; }
  TokenizerProcess(const TokenizerProcess&) = delete;
  TokenizerProcess& operator=(const TokenizerProcess&) = delete;

  // The ids of each text, without any special token around them; what looks like a special token
  // in a text is text, but between two kTemplateMark (examples/chat_template.h), where it must be
  // one: <|...|> that is none is DataLoss, as is what cannot be encoded. Other errors: Unavailable
  // as above, and for a missing package of a template.
  absl::StatusOr<std::vector<std::vector<int32_t>>> Encode(absl::Span<const std::string> texts);

  // By id: the bytes that the token adds to a text behind others, with the space before a word, of
  // which several together may be one character; "" where there is no token. Errors as above.
  absl::StatusOr<std::vector<std::string>> Spellings();

 private:
  TokenizerProcess(pid_t pid, UniqueFd socket) : pid_(pid), socket_(std::move(socket)) {}
  absl::StatusOr<std::string> Ask(const std::string& request);
  absl::StatusOr<std::string> ReadReply();
  absl::Status Died();

  pid_t pid_;
  UniqueFd socket_;
};

// DataLoss if an id that a tokenizer gave is not below `vocab_size`.
absl::Status CheckTokenizerIds(const std::vector<int32_t>& ids, uint64_t vocab_size);

}  // namespace anyorder::data
