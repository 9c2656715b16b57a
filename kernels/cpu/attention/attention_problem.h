// What the dispatcher (attention.cc) hands to the instruction-set specific code: plain pointers and
// numbers.
//
// The hot sources are compiled once per instruction set. An inline function or template of a shared
// header that such a file emits could be the copy the linker keeps for everyone, and then an old
// CPU would meet AVX-512 in code that never asked for it. So the hot sources see only this struct
// and their own namespace: no containers, no tensor views, no checks.

#pragma once

#include <cstdint>

#include "kernels/visibility.h"

namespace anyorder::kernels::cpu {

// Copies of either end that stand around a packed table of biases by distance, as many as a tile
// has keys.
inline constexpr int64_t kBiasPad = 64;

struct AttentionProblem {
  // Shape, as in AttentionShape. row_stride = H * D elements, key_stride = KV * D.
  int64_t batch_size = 0;
  int64_t content_rows = 0;
  int64_t query_rows = 0;
  int64_t num_keys = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // KV, never 0
  int64_t heads_per_kv = 1;  // H / KV
  int64_t head_dim = 0;
  int64_t num_distances = 0;       // 0: no position term
  int64_t num_bias_distances = 0;  // 0: no bias by distance
  int64_t row_stride = 0;
  int64_t key_stride = 0;

  // Activations: float or bf16 bits. Null where the tensor is null.
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* relative = nullptr;
  const void* content_bias = nullptr;
  const void* position_bias = nullptr;
  const void* segment_bias = nullptr;
  const void* segment_embedding = nullptr;
  const void* distance_bias = nullptr;
  int64_t min_distance = 0;
  int64_t min_bias_distance = 0;
  const int32_t* table_of_lane = nullptr;
  float scale = 0.0f;

  RowVisibility rows;
  KeyVisibility keys;
  const Band* bands = nullptr;

  // Dropout, taken apart (kernels/dropout.h). threshold 0: off.
  uint32_t dropout_key0 = 0;
  uint32_t dropout_key1 = 0;
  uint32_t dropout_site = 0;
  uint32_t dropout_threshold = 0;
  float dropout_scale = 1.0f;
  const int32_t* row_ids = nullptr;

  void* out = nullptr;   // forward writes, backward reads
  float* lse = nullptr;  // likewise
  const void* dout = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  float* slabs = nullptr;  // [B * H] gradient slabs, see SlabLayout
};

// Gradients of one (lane, head) that several tasks add to: relative rows in packed (reversed)
// order, then content bias, position bias, segment bias and "different" segment embedding. Width:
// padded head size. At the end one float a column of the packed bias by distance.
struct SlabLayout {
  int64_t padded_dim = 0;  // head_dim rounded up to 16
  int64_t num_distances = 0;
  int64_t num_bias_distances = 0;

  SlabLayout(int64_t head_dim, int64_t distances, int64_t bias_distances)
      : padded_dim((head_dim + 15) / 16 * 16),
        num_distances(distances),
        num_bias_distances(bias_distances) {}
  int64_t content_bias() const { return num_distances * padded_dim; }
  int64_t position_bias() const { return content_bias() + padded_dim; }
  int64_t segment_bias() const { return position_bias() + padded_dim; }
  int64_t segment_embedding() const { return segment_bias() + padded_dim; }
  int64_t distance_bias() const { return segment_embedding() + padded_dim; }
  int64_t bias_columns() const {
    return num_bias_distances > 0 ? num_bias_distances + 2 * kBiasPad : 0;
  }
  int64_t num_floats() const { return distance_bias() + (bias_columns() + 15) / 16 * 16; }
};

// dst[0..dim) = factor * (rows[0] + rows[1] + ...), added in this order; rows are padded to a
// multiple of 16 floats, dst is float or bf16.
struct RowSum {
  const float* const* rows = nullptr;
  int64_t num_rows = 0;
  int64_t dim = 0;
  float factor = 1.0f;
};

// One instruction set's kernels. `bf16` says what the activations are. Tasks are independent;
// backward has one a key/value head, with all heads that share it.
struct AttentionIsa {
  const char* name;
  int64_t (*scratch_bytes)(const AttentionProblem& problem, bool bf16, bool backward);
  void (*forward)(const AttentionProblem& problem, bool bf16, int64_t lane, int64_t head,
                  void* scratch);
  void (*backward)(const AttentionProblem& problem, bool bf16, int64_t lane, int64_t kv_head,
                   void* scratch);
  void (*sum_rows)(const RowSum& sum, bool bf16, void* dst);
};

namespace attention_base {
extern const AttentionIsa kIsa;
}
#ifdef ANYORDER_X86_VARIANTS
namespace attention_avx2 {
extern const AttentionIsa kIsa;
}
namespace attention_avx512 {
extern const AttentionIsa kIsa;
}
namespace attention_avx512_bf16 {
extern const AttentionIsa kIsa;
}
#endif

}  // namespace anyorder::kernels::cpu
