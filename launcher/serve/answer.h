// Requests answered by a TextService, several at once where they ask for the same.

#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "launcher/texts/request_json.h"
#include "launcher/texts/text_service.h"

namespace anyorder::launcher {

// Answers in the order of `requests`, which are of one op and not null. What is wrong with one of
// them is no fault of the others.
std::vector<absl::StatusOr<TextResult>> Answer(TextService& service,
                                               const std::vector<const TextRequest*>& requests);

// The response to each line, which should be a request's JSON, in their order; to what is no line,
// an error that says why. Neighbours of one op are answered at once.
std::vector<nlohmann::ordered_json> Respond(TextService& service,
                                            const std::vector<absl::StatusOr<std::string>>& lines,
                                            const RequestLimits& limits);

}  // namespace anyorder::launcher
