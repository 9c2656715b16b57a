// What the kernels of attention share: the problem as plain pointers, what is prepared before them,
// and the layout of what the first backward pass leaves to the others (kernels/attention.h has the
// formula).
//
// Two families of kernels compute rows: *general* ones (attention_general_*.cuh, any arguments of
// the contract) and *ring* ones (tensor cores, bf16, head_dim 64, positions of keys affine in their
// slots). Which family has the rows of a (stream, lane) only the device knows, because positions
// are there: both are launched, and the blocks of the other family's rows leave at once.

#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/platform/simt.h"

namespace anyorder::kernels::cuda {

// Gradients wait in scratch in tiles of this many key slots; the last one is padded.
inline constexpr int kScoreTile = 64;
inline constexpr int kMaxHeadDim = 256;
inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.69314718055994530942f;

enum AttentionForm : int32_t { kGeneralForm = 0, kRingForm = 1 };

// The contract's inputs; null where the term is dropped.
template <typename T>
struct AttentionProblem {
  int batch_size;    // B
  int content_rows;  // C, a lane
  int query_rows;    // Q, a lane
  int num_keys;      // K, a lane
  int num_heads;     // H
  int num_kv_heads;  // KV, never 0
  int heads_per_kv;  // H / KV
  int head_dim;      // D
  int num_tables;
  int num_distances;       // R
  int num_bias_distances;  // R'
  const T* q;
  const T* k;
  const T* v;
  const T* relative;
  int64_t min_distance;
  const int32_t* table_of_lane;
  const T* content_bias;
  const T* position_bias;
  const T* segment_bias;
  const T* segment_embedding;
  const T* distance_bias;
  int64_t min_bias_distance;
  float scale;
  RowVisibility rows;
  KeyVisibility keys;
  const Band* bands;
  Dropout dropout;
  const int32_t* row_ids;
  bool is_aligned;  // every head's part of every row begins at a 16-byte address and has whole
                    // groups of 8

  ANYORDER_HOST_DEVICE bool HasPosition() const { return num_tables > 0 && num_distances > 0; }
  ANYORDER_HOST_DEVICE int64_t model_dim() const { return int64_t{num_heads} * head_dim; }
  ANYORDER_HOST_DEVICE int64_t keys_dim() const { return int64_t{num_kv_heads} * head_dim; }
  // The index of the keys and values that a head reads.
  ANYORDER_HOST_DEVICE int KvHeadOf(int head) const { return head / heads_per_kv; }
  ANYORDER_HOST_DEVICE int64_t num_rows() const {
    return int64_t{batch_size} * (content_rows + query_rows);
  }
  // Stream 0: content, 1: query.
  ANYORDER_HOST_DEVICE int RowsOfStream(int stream) const {
    return stream == 0 ? content_rows : query_rows;
  }
  // The first row of a lane's stream.
  ANYORDER_HOST_DEVICE int64_t FirstRow(int stream, int lane) const {
    return stream == 0 ? int64_t{lane} * content_rows
                       : int64_t{batch_size} * content_rows + int64_t{lane} * query_rows;
  }
  ANYORDER_HOST_DEVICE int TableOf(int lane) const {
    return table_of_lane == nullptr ? 0 : table_of_lane[lane];
  }
  ANYORDER_HOST_DEVICE Band BandOf(int head) const {
    return bands == nullptr ? Band{} : bands[head];
  }
};

// What small kernels compute before the large ones, all in fp32. Null where the problem lacks the
// term.
struct AttentionPrepared {
  // [2 * B], index stream * B + lane: an AttentionForm. Null: all rows are the general kernels'.
  const int32_t* forms;
  // [num_tables, H, R]: (position_bias - content_bias) . relative[table][r], so that q +
  // content_bias is the only row operand.
  const float* distance_terms;
  // [N, H]: (q + segment_bias) . E_same, and (q + segment_bias) . (E_different - E_same); neither
  // has `scale`. The softmax needs the second alone, but lse has the first.
  const float* segment_same;
  const float* segment_difference;
};

ANYORDER_HOST_DEVICE bool HasForm(const AttentionPrepared& p, int batch_size, int stream, int lane,
                                  AttentionForm form) {
  return (p.forms == nullptr ? kGeneralForm : p.forms[stream * batch_size + lane]) == form;
}

template <typename T>
struct AttentionForwardParams {
  AttentionProblem<T> in;
  AttentionPrepared prepared;
  T* out;
  float* lse;
};

// The lanes and heads that one round of backward has; scratch holds one group at a time. Its rows
// are numbered like the problem's, as if there were no other lanes: content rows of its lanes, then
// query rows.
struct AttentionGroup {
  int first_lane;
  int num_lanes;
  int first_head;
  int num_heads;

  template <typename T>
  ANYORDER_HOST_DEVICE int64_t NumRows(const AttentionProblem<T>& in) const {
    return int64_t{num_lanes} * (in.content_rows + in.query_rows);
  }
  template <typename T>
  ANYORDER_HOST_DEVICE int64_t FirstRow(const AttentionProblem<T>& in, int stream, int lane) const {
    const int64_t at = lane - first_lane;
    return stream == 0 ? at * in.content_rows
                       : int64_t{num_lanes} * in.content_rows + at * in.query_rows;
  }
};

// What the first backward pass leaves. `row` below is a group's row, `head` a problem's head.
template <typename T>
struct AttentionScores {
  AttentionGroup group;
  int64_t group_rows;
  int padded_keys;   // K up to a multiple of kScoreTile
  T* probabilities;  // [group heads, group rows, padded_keys]: after dropout and its scale
  T* gradients;      // the same: gradient of the dot products, that is, with `scale`
  // [group heads, group rows, 2]: the tiles [first, last) of kScoreTile key slots that the pass
  // wrote for this row, zeros where it sees nothing. Whatever is outside is neither written nor
  // read. Every row has its hull written, [0, 0) if it sees nothing.
  int32_t* hulls;
  float* other_segment;  // [N, H] by the problem's rows: sum of `gradients` over visible keys of
                         // another segment; null without segments

  ANYORDER_HOST_DEVICE int64_t RowIndex(int64_t row, int head) const {
    return int64_t{head - group.first_head} * group_rows + row;
  }
  ANYORDER_HOST_DEVICE int64_t Offset(int64_t row, int head) const {
    return RowIndex(row, head) * padded_keys;
  }
  ANYORDER_HOST_DEVICE int32_t* HullOf(int64_t row, int head) const {
    return hulls + 2 * RowIndex(row, head);
  }
};

ANYORDER_HOST_DEVICE int PaddedKeys(int64_t num_keys) {
  return static_cast<int>((num_keys + kScoreTile - 1) / kScoreTile * kScoreTile);
}

// The first backward pass: dq (complete, with the segment's part), and `scores`.
template <typename T>
struct AttentionBackwardParams {
  AttentionProblem<T> in;
  AttentionPrepared prepared;
  AttentionScores<T> scores;
  const float* lse;    // [N, H]
  const float* delta;  // [N, H]: sum over d of dout * out
  const T* dout;
  T* dq;
};

}  // namespace anyorder::kernels::cuda
