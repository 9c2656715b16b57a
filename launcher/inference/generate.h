// `anyorder generate`: text from a checkpoint.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "kernels/backends/make_backend.h"

namespace anyorder::launcher {

struct GenerateOptions {
  std::string run_dir;
  int64_t step = -1;        // -1: the newest good checkpoint
  std::string input;        // prompts (prompts.h)
  std::string output;       // .jsonl to make, "-": standard output
  std::string vocab;        // SentencePiece model; "": the run's
  std::string letter_case;  // "cased", "uncased"; "": as the run's text was prepared

  // Beam search, or with `samples` > 0 that many drawn texts a prompt.
  int64_t beam = 5;
  int64_t best = 1;  // texts a prompt that are written, at most
  double length_penalty = 0;
  bool stop_first = false;
  int64_t samples = 0;
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
  int64_t seed = 1;

  // Of both. Tokens of a text, the end token included; absent: 128, or what the longest prompt
  // leaves of learned positions.
  std::optional<int64_t> max_tokens;
  int64_t min_tokens = 0;
  int64_t block_ngram = 0;
  int64_t batch = 8;    // prompts at once
  int64_t threads = 0;  // 0: all usable cores
  kernels::DeviceChoice device = kernels::DeviceChoice::kAuto;
};

// Writes one JSON object a text: prompt (its number, from 1), rank (from 1), input, text, score,
// log_prob, tokens, ended. The file must not be there yet; texts of finished prompts stay in it if
// something fails later.
// Errors: InvalidArgument for options that do not fit one another, the model or a prompt;
// AlreadyExists; FailedPrecondition for a run whose objective writes no text, another vocabulary,
// or unreadable prompts; NotFound, DataLoss.
absl::Status Generate(const GenerateOptions& options);

}  // namespace anyorder::launcher
