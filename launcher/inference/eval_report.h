// What `anyorder eval` prints: one JSON object, or the same for people.

#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <vector>

#include "core/train/evaluation/causal_walk.h"
#include "core/train/evaluation/evaluator.h"
#include "core/train/evaluation/loss_sums.h"
#include "core/train/evaluation/piece_lengths.h"
#include "core/train/run/run_config.h"

namespace anyorder::launcher {

using EvalJson = nlohmann::ordered_json;

// Members of the own objective's report: quantity, definition, settings, losses. `batches`: scored.
EvalJson OwnLossReport(const RunConfig& config, const EvaluatorOptions& options,
                       const Evaluator& evaluator, int64_t batches, const SplitLosses& losses);

// Members of the causal report. `model`: with the evaluation's memory and clamp. `lengths`: text of
// each token, or empty if unknown.
EvalJson CausalReport(const RunConfig& config, const ModelConfig& model,
                      const CausalWalkOptions& options, const CausalScore& score,
                      const std::vector<TextLength>& lengths);

// Prints `report`: run, data and the members above.
void PrintEvalForPeople(const EvalJson& report);

}  // namespace anyorder::launcher
