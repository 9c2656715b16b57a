// What the tests of core/generate compare with: logits of one text at a time, computed whole by a
// network whose mask is written pair by pair; and a token drawn from them.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/philox.h"
#include "core/generate/any_order/write_options.h"
#include "core/generate/inference_network.h"
#include "tests/core/network/model_testing.h"

namespace anyorder::testing {

// Makes another network of SmallModel().
using Backbone = void (*)(ModelConfig&);
inline void BackboneXlnet(ModelConfig&) {}
inline void BackboneRope(ModelConfig& model) {
  SetKeys("positions = rope, rope_base = 50, segments = none, layer_norm = pre", model);
}
inline void BackboneLearned(ModelConfig& model) { model = SmallLearnedModel(); }
inline void BackbonePairs(ModelConfig& model) {
  model = With(SmallLearnedModel(), "positions = learned_pairs");
}

// A small network that writes, and how it reads a canvas.
struct CanvasModel {
  std::string name;
  ModelConfig model;
  CanvasForm form;
  int64_t vocab_size = 0;
  std::vector<double> weights;
};

// A model that writes, with its weights in a backend's memory. It is outlived by both.
class StoredModel {
 public:
  explicit StoredModel(const CanvasModel& model, kernels::Backend& backend = SharedReference())
      : weights_(backend, ToDType(model.model.dtype), static_cast<int64_t>(model.weights.size())),
        writing_{.model = &model.model,
                 .vocab_size = model.vocab_size,
                 .weights = weights_.view(),
                 .form = model.form,
                 .backend = &backend} {
    weights_.Assign(model.weights);
  }
  const WritingModel& operator*() const { return writing_; }

 private:
  DeviceVector weights_;
  WritingModel writing_;
};

inline std::vector<WrittenText> Write(const CanvasModel& model, const std::vector<Canvas>& canvases,
                                      const WriteOptions& options,
                                      kernels::Backend& backend = SharedReference(),
                                      TokenListener listener = NobodyListens) {
  return WriteBlanks(*StoredModel(model, backend), canvases, options, listener).value();
}

// Positions in a text, or in a part of it: of its blanks, and of the tokens that are given.
inline std::vector<int64_t> BlanksOf(const std::vector<int32_t>& text, int64_t begin, int64_t end) {
  std::vector<int64_t> blanks;
  for (int64_t i = begin; i < std::min(end, std::ssize(text)); ++i)
    if (text[i] == kBlank) blanks.push_back(i);
  return blanks;
}
inline std::vector<int64_t> BlanksOf(const std::vector<int32_t>& text) {
  return BlanksOf(text, 0, std::ssize(text));
}
inline std::vector<int64_t> GivenOf(const std::vector<int32_t>& text) {
  std::vector<int64_t> given;
  for (int64_t i = 0; i < std::ssize(text); ++i)
    if (text[i] != kBlank) given.push_back(i);
  return given;
}

// Fisher and Yates, from the back.
inline void ShufflePlain(RandomStream random, std::vector<int64_t>& values) {
  for (size_t left = values.size(); left > 1; --left)
    std::swap(values[left - 1], values[random.Below64(left)]);
}

inline void PrintTo(const CanvasModel& value, std::ostream* out) { *out << value.name; }

using LogitRows = std::vector<std::vector<double>>;

// One pass over one text, in the model's dtype.
class PlainPass {
 public:
  // A content slot, or a query, whose token means nothing.
  struct Place {
    int32_t token = 0;
    int64_t position = 0;
    int64_t next = 0;  // that it predicts, of models with pairs of positions
    int32_t segment = 0;
  };
  // Whether row `row` (content, then queries) sees content slot `key`.
  using Sees = std::function<bool(size_t row, size_t key)>;

  // On a backend whose memory is the host's.
  explicit PlainPass(const CanvasModel& model, kernels::Backend& backend = SharedReference())
      : model_(model), backend_(backend) {
    model_.model.mem_len = 0;
  }

  // Logits [V] of each of the rows `reads`.
  LogitRows Logits(const std::vector<Place>& content, const std::vector<Place>& queries,
                   const Sees& sees, const std::vector<size_t>& reads) {
    const size_t slots = std::max<size_t>(1, content.size());
    Program& program = Find(slots, queries.size(), reads.size());
    Batch& batch = *program.batch;
    std::fill(batch.key_doc.begin(), batch.key_doc.end(),
              content.empty() ? kernels::kDocPad : int32_t{0});
    const size_t rows = content.size() + queries.size();
    const auto row_of = [&](size_t row) {
      return row < content.size() ? row : slots + row - content.size();
    };
    // Sets of seen keys form a chain, so that keys can be ranked by how many rows do not see them.
    for (size_t row = 0; row < rows; ++row) batch.row_lim[row_of(row)] = -1;
    for (size_t key = 0; key < content.size(); ++key) {
      int32_t rank = 0;
      for (size_t row = 0; row < rows; ++row) rank += sees(row, key) ? 0 : 1;
      batch.key_key[key] = rank;
      batch.key_pos[key] = static_cast<int32_t>(content[key].position);
      batch.key_seg[key] = content[key].segment;
      batch.tokens[key] = content[key].token;
      for (size_t row = 0; row < rows; ++row) {
        if (sees(row, key)) batch.row_lim[row_of(row)] = std::max(batch.row_lim[row_of(row)], rank);
      }
    }
    for (size_t row = 0; row < rows; ++row) {
      const Place& place = row < content.size() ? content[row] : queries[row - content.size()];
      batch.row_pos[row_of(row)] = static_cast<int32_t>(place.position);
      batch.row_seg[row_of(row)] = place.segment;
      if (batch.shape.next_positions)
        batch.row_next[row_of(row)] = static_cast<int32_t>(place.next);
      for (size_t key = 0; key < content.size(); ++key)
        EXPECT_EQ(
            testing::Sees(batch, static_cast<int64_t>(row_of(row)), static_cast<int64_t>(key)),
            sees(row, key))
            << "no chain: row " << row << " key " << key;
    }
    for (size_t i = 0; i < reads.size(); ++i)
      batch.readout_rows[i] = static_cast<int32_t>(row_of(reads[i]));
    return Run(program);
  }

 private:
  struct Program {
    std::unique_ptr<InferenceNetwork> network;
    std::unique_ptr<Batch> batch;
  };

  Program& Find(size_t content, size_t queries, size_t reads) {
    Program& program = programs_[{content, queries, reads}];
    if (program.network != nullptr) return program;
    BatchShape shape;
    shape.batch_size = 1;
    shape.content_rows = static_cast<int64_t>(content);
    shape.query_rows = static_cast<int64_t>(queries);
    shape.targets = static_cast<int64_t>(reads);
    shape.min_distance = -40;
    shape.num_distances = 81;
    shape.content_readout = true;
    shape.next_positions = model_.model.paired_positions();
    program.network =
        InferenceNetwork::Create({model_.model, shape, model_.vocab_size}, backend_).value();
    program.batch = std::make_unique<Batch>(shape);
    return program;
  }

  LogitRows Run(Program& program) {
    const DType dtype = ToDType(model_.model.dtype);
    const test::HostTensor weights = test::TensorOf(dtype, model_.weights);
    program.network->Run(*program.batch, weights.view(), nullptr);
    const int64_t reads = program.batch->shape.targets;
    test::HostTensor logits(program.network->shape().gradient_dtype(), {reads, model_.vocab_size});
    program.network->ReadLogits(*program.batch, logits.view());
    const std::vector<double> values = logits.Values();
    LogitRows rows;
    for (int64_t i = 0; i < reads; ++i) {
      const auto begin = values.begin() + i * model_.vocab_size;
      rows.emplace_back(begin, begin + model_.vocab_size);
    }
    return rows;
  }

  CanvasModel model_;
  kernels::Backend& backend_;
  std::map<std::vector<size_t>, Program> programs_;
};

// What may be drawn at a position: tokens in the order of drawing, and their probabilities.
class PlainChoice {
 public:
  PlainChoice(const TokenCuts& cuts, const std::vector<double>& logits,
              const std::vector<bool>& is_banned) {
    std::vector<std::pair<double, int32_t>> left;  // negated logits, so that sorting takes low ids
    for (size_t token = 0; token < logits.size(); ++token)
      if (!is_banned[token]) left.emplace_back(-logits[token], static_cast<int32_t>(token));
    const double largest = -std::min_element(left.begin(), left.end())->first;
    const double temperature = cuts.temperature > 0 ? cuts.temperature : 1;
    const size_t most = cuts.temperature > 0 ? static_cast<size_t>(cuts.top_k) : 1;
    if ((most > 0 && most < left.size()) || cuts.top_p < 1) std::sort(left.begin(), left.end());
    if (most > 0 && most < left.size()) left.resize(most);
    double all = 0;
    for (const auto& one : left) all += std::exp((-one.first - largest) / temperature);
    double sum = 0;
    for (const auto& one : left) {
      if (cuts.top_p < 1 && sum >= cuts.top_p * all) break;
      const double weight = std::exp((-one.first - largest) / temperature);
      sum += weight;
      tokens.push_back(one.second);
      probabilities.push_back(weight);
    }
    for (double& probability : probabilities) probability /= sum;
  }

  // The first token whose probability and those before it exceed `u`.
  int32_t Draw(double u) const {
    double sum = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      sum += probabilities[i];
      if (u < sum) return tokens[i];
    }
    return tokens.back();
  }
  double Of(int32_t token) const {
    for (size_t i = 0; i < tokens.size(); ++i)
      if (tokens[i] == token) return probabilities[i];
    return 0;
  }

  std::vector<int32_t> tokens;
  std::vector<double> probabilities;
};

inline double LogOfSoftmax(const std::vector<double>& logits, int32_t token) {
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - logits[token]);
  return -std::log(sum);
}

// What a network says of blanks of a part of a text, by the family's definition.
inline LogitRows ReadBlanks(PlainPass& pass, const CanvasForm& form,
                            const std::vector<int32_t>& text, const std::vector<int64_t>& asked,
                            int64_t part_begin, int64_t part_end) {
  std::vector<PlainPass::Place> content;
  std::vector<PlainPass::Place> queries;
  std::vector<size_t> reads;
  const auto shift = static_cast<size_t>(form.shifted ? 1 : 0);
  if (form.family == CanvasFamily::kTwoStream) {
    for (const int64_t position : GivenOf(text)) content.push_back({text[position], position});
    for (const int64_t position : asked) {
      reads.push_back(content.size() + queries.size());
      queries.push_back({0, position});
    }
    return pass.Logits(
        content, queries, [](size_t, size_t) { return true; }, reads);
  }
  const bool has_blocks = form.family == CanvasFamily::kBlocks;
  const int64_t end = has_blocks ? part_end : static_cast<int64_t>(text.size());
  // As many tokens as training had, in whole blocks, and the slot that predicts the part's first.
  const int64_t window = std::min(part_begin + form.block_len - form.seq_len,
                                  part_begin - static_cast<int64_t>(shift));
  const int64_t first = has_blocks ? std::max<int64_t>(0, window) : 0;
  for (int64_t i = first; i < end; ++i)
    content.push_back({text[i] == kBlank ? form.mask_token : text[i], i});
  for (const int64_t position : asked)
    reads.push_back(static_cast<size_t>(position - first) - shift);
  const auto sees = [&](size_t row, size_t key) {
    return !has_blocks ||
           content[key].position / form.block_len <= content[row].position / form.block_len;
  };
  return pass.Logits(content, {}, sees, reads);
}

// An order of one text: what was given, then blanks in groups.
struct PlainOrder {
  std::vector<int64_t> positions;
  size_t num_given = 0;
  std::vector<size_t> group_ends;  // in `positions`
  size_t diffusion_end = 0;        // Eso-LM: tokens before it were given or written by diffusion
};

// Logits of tokens [known, end) of the order when the first `known` are there: one pass.
inline LogitRows ReadGroup(PlainPass& pass, const CanvasForm& form, const PlainOrder& order,
                           const std::vector<int32_t>& text, size_t known, size_t end) {
  std::vector<PlainPass::Place> content;
  std::vector<PlainPass::Place> queries;
  std::vector<size_t> reads;
  const bool is_diffusion = known < order.diffusion_end;
  for (size_t i = 0; i < known; ++i) {
    const int64_t next = i + 1 < order.positions.size() ? order.positions[i + 1] : 0;
    content.push_back({text[order.positions[i]], order.positions[i], next});
  }
  switch (form.family) {
    case CanvasFamily::kPairs: reads = {known - 1}; break;
    case CanvasFamily::kTwoStream:
      for (size_t i = known; i < end; ++i) {
        reads.push_back(i);
        queries.push_back({0, order.positions[i]});
      }
      break;
    default: {
      const size_t shown = form.eso.masks_see_all && is_diffusion ? order.positions.size() : end;
      for (size_t i = known; i < shown; ++i) {
        if (i < end) reads.push_back(i);
        content.push_back({form.mask_token, order.positions[i]});
      }
    }
  }
  // The group of each token of the order: what was given is one, of networks of two streams.
  const auto group_of = [&](size_t i) {
    size_t group = i < order.num_given ? 0 : 1;
    for (const size_t group_end : order.group_ends) group += i >= group_end ? 1 : 0;
    return group;
  };
  const auto sees = [&](size_t row, size_t key) {
    switch (form.family) {
      case CanvasFamily::kTwoStream: return row >= known || group_of(key) <= group_of(row);
      case CanvasFamily::kPairs: return key <= row;
      default: break;
    }
    const bool is_mask = row >= known;
    if (is_mask) return (form.eso.masks_see_all && is_diffusion) || key <= row;
    if (form.eso.clean_see_all && row < order.diffusion_end && key < known)
      return key < order.diffusion_end;
    return key <= row;
  };
  return pass.Logits(content, queries, sees, reads);
}

struct PlacedToken {
  int64_t position = 0;
  int32_t token = 0;
};

// The logits of the blank at `asked` given tokens in the order of writing, of which the first
// `num_given` were there.
inline std::vector<double> ReadNext(PlainPass& pass, CanvasForm form,
                                    const std::vector<PlacedToken>& known, size_t num_given,
                                    int64_t asked) {
  // Both read the slot of the newest token.
  if (form.family == CanvasFamily::kCausal) form.family = CanvasFamily::kPairs;
  PlainOrder order{.num_given = num_given};
  std::vector<int32_t> text(32);
  for (const PlacedToken& one : known) {
    order.positions.push_back(one.position);
    text[one.position] = one.token;
  }
  order.positions.push_back(asked);
  for (size_t i = num_given; i <= known.size(); ++i) order.group_ends.push_back(i + 1);
  return ReadGroup(pass, form, order, text, known.size(), known.size() + 1).front();
}

}  // namespace anyorder::testing
