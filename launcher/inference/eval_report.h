// What `anyorder eval` prints: one JSON object, or the same for people.

#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <vector>

#include "core/train/evaluation/causal_walk.h"
#include "core/train/evaluation/evaluator.h"
#include "core/train/evaluation/loss_sums.h"
#include "core/train/run/run_config.h"
#include "data/dataset/dataset_index.h"
#include "data/prep/sentencepiece_bridge.h"

namespace anyorder::launcher {

using EvalJson = nlohmann::ordered_json;

struct TextLength {
  int64_t characters = 0;  // code points
  int64_t bytes = 0;       // UTF-8
};

// How much text a token stands for, by its id: bits per character and per byte need it. A word mark
// counts as the one character it stands for (a space, or the begin of a line); `ids` (<eod> and the
// like) stand for no text, <unk> for one character, whose bytes count as one. Empty, which is
// unknown, if there are byte pieces.
std::vector<TextLength> PieceLengths(const std::vector<data::VocabularyPiece>& pieces,
                                     const data::VocabIds& ids);

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
