#include "tests/core/network/plain_xlnet.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/check.h"

namespace anyorder::testing {
namespace {

// a [m, k] times b [k, n] given flat.
Matrix MatMul(const Matrix& a, const std::vector<double>& b, int64_t n) {
  Matrix c(a.rows, n);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t k = 0; k < a.columns; ++k) {
      for (int64_t j = 0; j < n; ++j) c(i, j) += a(i, k) * b[k * n + j];
    }
  }
  return c;
}

std::vector<double> Transposed(const std::vector<double>& a, int64_t rows, int64_t columns) {
  std::vector<double> b(a.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) b[j * rows + i] = a[i * columns + j];
  }
  return b;
}

Matrix LayerNormOfSum(const Matrix& x, const Matrix& residual, const std::vector<double>& gamma,
                      const std::vector<double>& beta, double epsilon) {
  Matrix y(x.rows, x.columns);
  const auto width = static_cast<double>(x.columns);
  for (int64_t i = 0; i < x.rows; ++i) {
    double mean = 0;
    double variance = 0;
    for (int64_t j = 0; j < x.columns; ++j) mean += (x(i, j) + residual(i, j)) / width;
    for (int64_t j = 0; j < x.columns; ++j)
      variance += std::pow(x(i, j) + residual(i, j) - mean, 2) / width;
    for (int64_t j = 0; j < x.columns; ++j) {
      y(i, j) =
          gamma[j] * (x(i, j) + residual(i, j) - mean) / std::sqrt(variance + epsilon) + beta[j];
    }
  }
  return y;
}

Matrix Stack(const Matrix& top, const Matrix& bottom) {
  Matrix both(top.rows + bottom.rows, bottom.columns);
  std::copy(top.values.begin(), top.values.end(), both.values.begin());
  std::copy(bottom.values.begin(), bottom.values.end(), both.values.begin() + top.values.size());
  return both;
}

// The released rel_shift: [q, r] seen as [r, q], first row dropped, seen as [q, r - 1], first k
// columns kept.
Matrix RelativeShift(const Matrix& x, int64_t num_keys) {
  const int64_t q = x.rows;
  const int64_t r = x.columns;
  Matrix shifted(q, num_keys);
  for (int64_t i = 0; i < q; ++i) {
    for (int64_t j = 0; j < num_keys; ++j) shifted(i, j) = x.values[q + i * (r - 1) + j];
  }
  return shifted;
}

// The mask of one stream over [memory ; slots]; the content stream always sees its own slot.
Matrix StreamMask(const Matrix& perm_mask, int64_t memory_rows, bool content) {
  Matrix mask(perm_mask.rows, memory_rows + perm_mask.columns);
  for (int64_t i = 0; i < perm_mask.rows; ++i) {
    for (int64_t j = 0; j < perm_mask.columns; ++j)
      mask(i, memory_rows + j) = content && i == j ? 0.0 : perm_mask(i, j);
  }
  return mask;
}

LocalPermutation PermuteHalf(const std::vector<uint8_t>& is_masked,
                             const std::vector<uint8_t>& is_functional,
                             const std::vector<int32_t>& rank) {
  const auto size = static_cast<int64_t>(rank.size());
  LocalPermutation result;
  result.perm_mask = Matrix(size, size);
  std::vector<int> rev, self;
  for (size_t j = 0; j < rank.size(); ++j) {
    const bool is_context = !is_masked[j] && !is_functional[j];
    result.is_target.push_back(is_masked[j] && !is_functional[j] ? 1 : 0);
    rev.push_back(is_context ? -1 : rank[j]);
    self.push_back(result.is_target[j] ? rev[j] : rev[j] + 1);
  }
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t j = 0; j < size; ++j)
      result.perm_mask(i, j) = rev[j] >= 0 && self[i] <= rev[j] ? 1.0 : 0.0;
  }
  return result;
}

}  // namespace

LocalPermutation PermuteSequence(const TextSample& sample, int64_t half_len) {
  const auto size = static_cast<int64_t>(sample.tokens.size());
  LocalPermutation both;
  both.perm_mask = Matrix(size, size);
  for (int64_t begin = 0; begin < size; begin += half_len) {
    const auto part = [&](const auto& array) {
      return std::vector(array.begin() + begin, array.begin() + begin + half_len);
    };
    const LocalPermutation half =
        PermuteHalf(part(sample.is_masked), part(sample.is_functional), part(sample.order));
    both.is_target.insert(both.is_target.end(), half.is_target.begin(), half.is_target.end());
    for (int64_t i = 0; i < half_len; ++i) {
      for (int64_t j = 0; j < size; ++j) {
        const bool same_half = j >= begin && j < begin + half_len;
        both.perm_mask(begin + i, j) =
            same_half ? half.perm_mask(i, j - begin) : (j > begin ? 1.0 : 0.0);
      }
    }
  }
  return both;
}

PlainXlnet::PlainXlnet(const ModelConfig& config, int64_t vocab_size,
                       const std::vector<double>& flat_weights)
    : config_(config) {
  ANYORDER_CHECK(config.activation == kernels::Activation::kGeluTanh && config.relative_segments());
  const ParameterLayout layout(config, vocab_size);
  for (const ParameterInfo& info : layout.parameters()) {
    weights_[info.name] =
        std::vector<double>(flat_weights.begin() + info.offset, flat_weights.begin() + info.end());
  }
}

std::vector<double> PlainXlnet::LayerWeight(int64_t layer, const std::string& name) const {
  return Weight("transformer.layer." + std::to_string(layer) + "." + name);
}

// Rows for the distances K, K-1, ..., -Q+1; for text that reads backwards those times -1.
Matrix PlainXlnet::PositionEncodings(int64_t num_rows, int64_t num_keys, bool backward) const {
  const int64_t dim = config_.model_dim;
  Matrix table(num_keys + num_rows, dim);
  for (int64_t row = 0; row < table.rows; ++row) {
    double distance = static_cast<double>(num_keys - row) * (backward ? -1.0 : 1.0);
    const auto clamp = static_cast<double>(config_.clamp_len);
    if (clamp > 0) distance = std::min(std::max(distance, -clamp), clamp);
    for (int64_t f = 0; f < dim / 2; ++f) {
      const double inverse_frequency =
          1.0 / std::pow(10000.0, 2.0 * static_cast<double>(f) / static_cast<double>(dim));
      table(row, f) = std::sin(distance * inverse_frequency);
      table(row, dim / 2 + f) = std::cos(distance * inverse_frequency);
    }
  }
  return table;
}

Matrix PlainXlnet::Attend(int64_t layer, const Matrix& x, const Matrix& keys, const Matrix& mask,
                          const std::vector<int32_t>& segment, bool backward) const {
  const int64_t heads = config_.num_heads;
  const int64_t head_dim = config_.head_dim;
  const int64_t width = heads * head_dim;
  const int64_t memory_rows = keys.rows - x.rows;
  const std::string scope = config_.untie_r
                                ? "transformer.layer." + std::to_string(layer) + ".rel_attn."
                                : "transformer.";
  const std::vector<double>& r_w_bias = Weight(scope + "r_w_bias");
  const std::vector<double>& r_r_bias = Weight(scope + "r_r_bias");
  const std::vector<double>& r_s_bias = Weight(scope + "r_s_bias");
  const std::vector<double> seg_embed = LayerWeight(layer, "rel_attn.seg_embed");
  const Matrix q = MatMul(x, LayerWeight(layer, "rel_attn.q"), width);
  const Matrix k = MatMul(keys, LayerWeight(layer, "rel_attn.k"), width);
  const Matrix v = MatMul(keys, LayerWeight(layer, "rel_attn.v"), width);
  const Matrix r = MatMul(PositionEncodings(x.rows, keys.rows, backward),
                          LayerWeight(layer, "rel_attn.r"), width);
  Matrix attended(x.rows, width);
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t first = h * head_dim;
    Matrix position_scores(x.rows, r.rows);
    for (int64_t i = 0; i < x.rows; ++i) {
      for (int64_t p = 0; p < r.rows; ++p) {
        for (int64_t e = first; e < first + head_dim; ++e)
          position_scores(i, p) += (q(i, e) + r_r_bias[e]) * r(p, e);
      }
    }
    const Matrix shifted = RelativeShift(position_scores, keys.rows);
    for (int64_t i = 0; i < x.rows; ++i) {
      std::vector<double> scores(static_cast<size_t>(keys.rows));
      double largest = -INFINITY;
      for (int64_t j = 0; j < keys.rows; ++j) {
        const int32_t key_segment = j < memory_rows ? 0 : segment[j - memory_rows];
        const double one_hot[2] = {segment[i] == key_segment ? 1.0 : 0.0,
                                   segment[i] == key_segment ? 0.0 : 1.0};
        double score = shifted(i, j);
        for (int64_t e = first; e < first + head_dim; ++e) {
          score += (q(i, e) + r_w_bias[e]) * k(j, e);
          for (int64_t s = 0; s < 2; ++s)
            score += (q(i, e) + r_s_bias[e]) * seg_embed[s * width + e] * one_hot[s];
        }
        scores[j] = score / std::sqrt(static_cast<double>(head_dim)) - 1e30 * mask(i, j);
        largest = std::max(largest, scores[j]);
      }
      double total = 0;
      for (double& score : scores) total += score = std::exp(score - largest);
      for (int64_t j = 0; j < keys.rows; ++j) {
        for (int64_t e = first; e < first + head_dim; ++e)
          attended(i, e) += scores[j] / total * v(j, e);
      }
    }
  }
  const std::vector<double> o =
      Transposed(LayerWeight(layer, "rel_attn.o"), config_.model_dim, width);
  return LayerNormOfSum(MatMul(attended, o, config_.model_dim), x,
                        LayerWeight(layer, "rel_attn.layer_norm.weight"),
                        LayerWeight(layer, "rel_attn.layer_norm.bias"), config_.layer_norm_epsilon);
}

Matrix PlainXlnet::FeedForward(int64_t layer, const Matrix& x) const {
  const int64_t dim = config_.model_dim;
  const int64_t ffn = config_.ffn_dim;
  const std::vector<double> bias_1 = LayerWeight(layer, "ff.layer_1.bias");
  const std::vector<double> bias_2 = LayerWeight(layer, "ff.layer_2.bias");
  Matrix hidden = MatMul(x, Transposed(LayerWeight(layer, "ff.layer_1.weight"), ffn, dim), ffn);
  for (int64_t i = 0; i < hidden.rows; ++i) {
    for (int64_t j = 0; j < ffn; ++j) {
      const double z = hidden(i, j) + bias_1[j];
      hidden(i, j) =
          0.5 * z * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z)));
    }
  }
  Matrix y = MatMul(hidden, Transposed(LayerWeight(layer, "ff.layer_2.weight"), dim, ffn), dim);
  for (int64_t i = 0; i < y.rows; ++i) {
    for (int64_t j = 0; j < dim; ++j) y(i, j) += bias_2[j];
  }
  return LayerNormOfSum(y, x, LayerWeight(layer, "ff.layer_norm.weight"),
                        LayerWeight(layer, "ff.layer_norm.bias"), config_.layer_norm_epsilon);
}

std::array<double, 2> PlainXlnet::NextSentenceLogits(const Matrix& h) const {
  const int64_t dim = config_.model_dim;
  std::array<double, 2> logits{Weight("logits_proj.bias")[0], Weight("logits_proj.bias")[1]};
  for (int64_t i = 0; i < dim; ++i) {
    double sum = Weight("sequence_summary.summary.bias")[i];
    for (int64_t j = 0; j < dim; ++j)
      sum += Weight("sequence_summary.summary.weight")[i * dim + j] * h(h.rows - 1, j);
    for (size_t c = 0; c < 2; ++c)
      logits[c] += Weight("logits_proj.weight")[c * dim + i] * std::tanh(sum);
  }
  return logits;
}

PlainOutput PlainXlnet::Run(const TextSample& sample, int64_t half_len,
                            const std::vector<Matrix>& memory) const {
  const auto size = static_cast<int64_t>(sample.tokens.size());
  const int64_t dim = config_.model_dim;
  LocalPermutation order = PermuteSequence(sample, half_len);
  if (config_.next_sentence_head) {
    // CLS sees all and is seen by none.
    for (int64_t i = 0; i < size; ++i) {
      order.perm_mask(size - 1, i) = 0;
      order.perm_mask(i, size - 1) = 1;
    }
  }
  const std::vector<double>& embedding = Weight("transformer.word_embedding.weight");
  Matrix h(size, dim);
  Matrix g(size, dim);
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t c = 0; c < dim; ++c) {
      h(i, c) = embedding[sample.tokens[i] * dim + c];
      g(i, c) = Weight("transformer.mask_emb")[c];
    }
  }
  PlainOutput output;
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
    const Matrix& old = memory[layer];
    Matrix reused(half_len, dim);
    std::copy_n(h.values.begin(), half_len * dim, reused.values.begin());
    const Matrix history = Stack(old, reused);
    Matrix kept(old.rows, dim);
    std::copy(history.values.end() - old.rows * dim, history.values.end(), kept.values.begin());
    output.memory.push_back(kept);

    const Matrix keys = Stack(old, h);
    const Matrix content_mask = StreamMask(order.perm_mask, old.rows, true);
    const Matrix query_mask = StreamMask(order.perm_mask, old.rows, false);
    h = FeedForward(layer, Attend(layer, h, keys, content_mask, sample.segment, sample.backward));
    g = FeedForward(layer, Attend(layer, g, keys, query_mask, sample.segment, sample.backward));
  }
  const std::vector<double>& bias = Weight("lm_loss.bias");
  const Matrix logits = MatMul(g, Transposed(embedding, static_cast<int64_t>(bias.size()), dim),
                               static_cast<int64_t>(bias.size()));
  for (int64_t i = 0; i < size; ++i) {
    if (!order.is_target[i]) continue;
    double total = 0;
    for (size_t t = 0; t < bias.size(); ++t)
      total += std::exp(logits(i, static_cast<int64_t>(t)) + bias[t]);
    const int32_t label = sample.tokens[i];
    output.losses.push_back(std::log(total) - logits(i, label) - bias[label]);
  }
  if (config_.next_sentence_head) output.next_sentence_logits = NextSentenceLogits(h);
  return output;
}

}  // namespace anyorder::testing
