// How probable a model thinks texts are, or the choices of questions: `anyorder likelihood`. Texts
// that another model wrote have their generative perplexity so.

#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "launcher/likelihood/text_measures.h"
#include "launcher/texts/text_service.h"

namespace anyorder::launcher {

// A line of the input.
struct LikelihoodItem {
  int64_t line = 1;
  std::string context;
  std::vector<std::string> texts;  // one that follows the context, or several to choose from
  int64_t answer = -1;             // the right choice, from 0; -1: not known
};

struct LikelihoodInput {
  std::string name;  // for messages and reports
  bool has_choices = false;
  std::vector<LikelihoodItem> items;  // at least one; no text is empty
  int64_t empty_texts = 0;            // which have no likelihood, and were left out
};

// A .jsonl has an object in each line: `text` and perhaps `input`, as `generate` writes them, or
// `choices` with perhaps `input` or `context`, and `answer` or `label`. Any other file has a text
// in each line. Standard input, "-", is either: objects if its first line begins with "{".
// FailedPrecondition, naming the line, for anything else.
absl::StatusOr<LikelihoodInput> ReadLikelihoodInput(const std::string& path);

struct LikelihoodOptions {
  int64_t bound_samples = 128;  // masks that a bound is the mean of
  uint64_t seed = 1;            // the choices of a question share the draws, other lines do not
};

// The scores of each item's texts. `goes_on` is told how many of how many texts are done, and ends
// the work by saying false (Cancelled). Errors: the service's, with the line.
using GoesOn = std::function<bool(int64_t done, int64_t total)>;
absl::StatusOr<std::vector<std::vector<TextScore>>> ScoreItems(const LikelihoodInput& input,
                                                               const LikelihoodOptions& options,
                                                               const GoesOn& goes_on,
                                                               TextService& service);

// A sum by its units over all texts, and its standard error over texts.
struct Rate {
  double mean = 0;
  double standard_error = 0;  // NaN of less than two texts
};
// sum x / sum u, and by the linearised variance of a ratio (Cochran, Sampling Techniques, 6.5):
// n / (n - 1) sum (x - mean u)^2 / (sum u)^2. NaN where there are no units.
Rate RateOf(const std::vector<double>& values, const std::vector<double>& units);

// The line of the output for an item.
std::string LikelihoodLine(const LikelihoodItem& item, const std::vector<TextScore>& scores);

// What all of them say together (README.md has the fields). `tokens`: of each text, as the model
// encodes it without its context; of questions none are needed.
nlohmann::ordered_json LikelihoodSummary(const LikelihoodInput& input,
                                         const std::vector<std::vector<TextScore>>& scores,
                                         const std::vector<TokenNumbers>& tokens,
                                         const ModelFacts& facts);
// For people.
std::string LikelihoodTable(const nlohmann::ordered_json& summary);

}  // namespace anyorder::launcher
