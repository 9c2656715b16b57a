// One microbatch in the form the network takes: slots, visibility arrays and a readout list.
//
// B lanes; S content slots, Q query slots and M memory slots a lane; K = M + S keys a lane (memory
// first). Rows are ordered as in kernels/attention.h: all content rows lane by lane, then all query
// rows.

#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/visibility.h"

namespace anyorder {

// A readout's entries can belong to several losses that are reported apart.
inline constexpr int64_t kMaxLosses = 4;

struct BatchShape {
  int64_t batch_size = 0;    // B
  int64_t content_rows = 0;  // S
  int64_t query_rows = 0;    // Q, 0 for single-stream objectives
  int64_t memory_rows = 0;   // M
  int64_t targets = 0;       // readout rows a lane, padding included
  int64_t advance = 0;       // U: memory takes the states of the first U content slots
  // Distances pos_i - pos_j that visible pairs can have: [min_distance, min_distance +
  // num_distances).
  int64_t min_distance = 0;
  int64_t num_distances = 0;
  bool query_is_key = false;  // query slots get keys and values too (grp >= 0): then K = M + S + Q
  // Whether the readout names content rows as well as query rows. Without query rows it always
  // does. If it does not, the last layer computes no content rows: nothing would read them.
  bool content_readout = false;
  // Whether each lane has a row whose state says if B follows A, apart from the readout. It must be
  // a row that the last layer computes: a query row, or a content row with content_readout.
  bool next_sentence = false;
  // Whether lanes say what the step divides its sum of losses by (Batch::divisors), instead of the
  // sum of weights.
  bool own_divisor = false;
  // Whether rows say the position of the token that they predict (Batch::row_next), for a model
  // whose learned positions come in pairs.
  bool next_positions = false;
  // The losses that Batch::loss_ids tells apart, at most kMaxLosses; none: one, without a name.
  // Lower-case words, none of them a split's ("forward", "backward", "reuse", "a", "b"). A run
  // reports the mean of each as loss_NAME. With a task head the first is the head's.
  std::vector<std::string> loss_names = {};

  // Rows a lane whose states the task head reads (heads/task_head.h); 0: none. Rows that the last
  // layer computes.
  int64_t task_rows = 0;
  // Whether the head looks for spans, or tells classes of words: the rows are then all content
  // rows.
  bool has_spans = false;
  bool has_tags = false;

  // Content slots a lane that attend with projections of their own, where the model has those
  // (Longformer): G.
  int64_t global_rows = 0;

  // Not 0: the key slots a lane that a KeyCache holds, K, among them those of the batch's own
  // content rows (step_context.h). Then there is neither memory nor a query row that is a key, and
  // nothing is learned.
  int64_t cached_keys = 0;

  int64_t num_rows() const { return batch_size * (content_rows + query_rows); }
  // Keys a lane that the batch's own rows and memory give, and all that rows may see.
  int64_t num_own_keys() const {
    return memory_rows + content_rows + (query_is_key ? query_rows : 0);
  }
  int64_t num_keys() const { return cached_keys > 0 ? cached_keys : num_own_keys(); }
  // States that a step adds to the memory, and slots of a ring that holds those and the ones it
  // reads (memory_ring.h).
  int64_t fresh_rows() const { return advance < memory_rows ? advance : memory_rows; }
  int64_t ring_rows() const { return memory_rows + fresh_rows(); }
  bool operator==(const BatchShape& other) const = default;
};

// The visibility arrays of a Batch or of a DeviceBatch.
template <typename Arrays>
kernels::RowVisibility RowsOf(const Arrays& a) {
  return {a.row_pos.data(), a.row_lim.data(), a.row_grp.data(),
          a.row_doc.data(), a.row_seg.data(), a.row_glob.data()};
}
template <typename Arrays>
kernels::KeyVisibility KeysOf(const Arrays& a) {
  return {a.key_pos.data(), a.key_key.data(), a.key_grp.data(),
          a.key_doc.data(), a.key_seg.data(), a.key_glob.data()};
}

struct Batch {
  // All arrays sized for `shape`: one document, no groups, no globals, everything else 0.
  explicit Batch(const BatchShape& shape);

  BatchShape shape;
  int64_t step = 0;
  std::vector<int64_t> lanes;      // [B] global lane ids
  std::vector<int32_t> direction;  // [B] 0 forward, 1 backward: which relative table
  std::vector<int32_t> tokens;     // [B * S] ids of content slots
  std::vector<int32_t> row_ids;  // [num_rows] logical row ids (lane * (S + Q) + slot), for dropout

  // Visibility of rows, each [num_rows], and of keys, each [B * K].
  std::vector<int32_t> row_pos, row_lim, row_grp, row_doc, row_seg;
  std::vector<uint8_t> row_glob;
  std::vector<int32_t> row_next;  // [num_rows] with shape.next_positions, else empty
  std::vector<int32_t> key_pos, key_key, key_grp, key_doc, key_seg;
  std::vector<uint8_t> key_glob;
  std::vector<kernels::Band> bands;  // [layers * heads] windows, or empty: those of ModelConfig
  // [B * G] content rows, lane by lane, all of a lane's global ones first. Entries over name rows
  // of the lane that are not global, each another one, and change nothing.
  std::vector<int32_t> global_slots;

  // Readout: targets * B entries. `readout_rows` index rows in row order; padding has weight 0.
  std::vector<int32_t> readout_rows;
  std::vector<int32_t> labels;
  std::vector<float> weights;
  // [B] with shape.own_divisor, else empty: what each lane adds to the divisor of the step's loss
  // and gradient. For losses whose weights do not sum to the number of tokens they speak of, as 1/p
  // of masked diffusion.
  std::vector<double> divisors;
  // [targets * B] with shape.loss_names, else empty: the index of each entry's loss. What is
  // minimised is their sum, weights and divisor as ever; the ids only say what is reported apart.
  std::vector<int32_t> loss_ids;

  // The next-sentence row of each lane, its class and the weight of its loss, [B] each; empty
  // without the head.
  std::vector<int32_t> summary_rows;
  std::vector<int32_t> summary_labels;
  std::vector<float> summary_weights;

  // The task head's, empty without one: its rows, all different, and whether each is a choice, a
  // token that an answer may hold, or one that begins a word with a tag, [B * task_rows]; of each
  // lane the weight of its loss (with tags, the number of those that are known), the class, choice,
  // or 1 where no span is the answer, and the score, [B].
  std::vector<int32_t> task_rows;
  std::vector<uint8_t> task_valid;
  std::vector<float> task_weights;
  std::vector<int32_t> task_labels;
  std::vector<float> task_scores;
  // For tasks with spans, else empty: content slots of the answer's first and last token, both that
  // of CLS where no span is the answer; of CLS; and of the passage's first token, [B] each.
  std::vector<int32_t> task_starts, task_ends, task_classifiers, task_passages;
  // For tasks with tags, else empty: the class of each row, kUnknownTag or kNoTag, [B * task_rows].
  std::vector<int32_t> task_tags;

  // Sum of weights of the readout, without next-sentence entries.
  double TargetWeight() const { return std::accumulate(weights.begin(), weights.end(), 0.0); }
  // Sum of divisors, or TargetWeight() without any: the step's loss is its sum of losses by this.
  double Divisor() const {
    return shape.own_divisor ? std::accumulate(divisors.begin(), divisors.end(), 0.0)
                             : TargetWeight();
  }
  kernels::RowVisibility rows() const { return RowsOf(*this); }
  kernels::KeyVisibility keys() const { return KeysOf(*this); }
};

}  // namespace anyorder
