// Texts drawn from a model whose lanes stay.

#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/status.h"
#include "core/generate/sampling.h"

namespace anyorder::testing {

// One a lane, of numbers `streams`. NextTokens' errors.
inline absl::StatusOr<std::vector<Hypothesis>> SampleTexts(NextTokens& model,
                                                           const SampleOptions& options,
                                                           const std::vector<uint64_t>& streams,
                                                           TokenListener listener = NobodyListens) {
  std::vector<SampledText> texts;
  for (const uint64_t stream : streams) texts.emplace_back(&options, stream);
  std::vector<int32_t> newest(texts.size(), 0), own(texts.size());
  std::iota(own.begin(), own.end(), 0);
  const auto is_done = [](const SampledText& text) { return text.is_done(); };
  while (!std::all_of(texts.begin(), texts.end(), is_done)) {
    RETURN_IF_ERROR(model.Next(newest, own));
    for (size_t b = 0; b < texts.size(); ++b) {
      if (texts[b].is_done()) continue;
      ASSIGN_OR_RETURN(const float* const logits, model.Logits(static_cast<int64_t>(b)));
      const auto token = texts[b].Draw(logits, model.vocab_size());
      newest[b] = token ? token->token : 0;
      if (token) listener(static_cast<int64_t>(b), *token);
    }
  }
  std::vector<Hypothesis> drawn;
  for (const SampledText& text : texts) drawn.push_back(text.text());
  return drawn;
}

}  // namespace anyorder::testing
