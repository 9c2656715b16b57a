#include "tests/parity/planted_backend.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "tests/testing/forwarding_backend.h"

namespace anyorder {
namespace {

using testing::ForwardingBackend;

// A copy of `values`, kept in `storage`, that may be changed.
template <typename T>
T* Copied(const T* values, int64_t size, std::vector<T>& storage) {
  storage.assign(values, values + size);
  return storage.data();
}

// Mistakes in the order of the distances: encodings of relative positions (XLNet's R) with the sign
// of the distance turned.
class PlantedDistance final : public ForwardingBackend {
 public:
  PlantedDistance(std::unique_ptr<kernels::Backend> inner, const RunConfig& config, bool all_lanes)
      : ForwardingBackend(std::move(inner)),
        seq_len_(config.sampling.seq_len),
        num_distances_(2 * config.sampling.seq_len - 1 + config.model.mem_len),
        dim_(config.model.model_dim),
        all_lanes_(all_lanes) {}

  void Gemm(const kernels::GemmArgs& args, StreamView stream) override {
    const bool takes_encodings = args.a.dim(1) == dim_ && (args.a.dim(0) == num_distances_ ||
                                                           args.a.dim(0) == 2 * num_distances_);
    if (!takes_encodings) return ForwardingBackend::Gemm(args, stream);
    std::vector<float> storage;
    float* const encodings = Copied(args.a.data<float>(), args.a.num_elements(), storage);
    for (int64_t table = 0; table < args.a.dim(0) / num_distances_; ++table)
      TurnSigns(encodings + table * num_distances_ * dim_);
    kernels::GemmArgs planted = args;
    planted.a = ConstTensorView(encodings, args.a.shape());
    ForwardingBackend::Gemm(planted, stream);
  }

 private:
  // Sines change sign with the distance, cosines do not.
  void TurnSigns(float* table) const {
    // Row seq_len is distance 1, whose first sine tells the direction.
    const bool backward = table[seq_len_ * dim_] < 0;
    if (!all_lanes_ && !backward) return;
    for (int64_t row = 0; row < num_distances_; ++row) {
      for (int64_t column = 0; column < dim_ / 2; ++column)
        table[row * dim_ + column] *= -1;
    }
  }

  const int64_t seq_len_, num_distances_, dim_;
  const bool all_lanes_;
};

// Mistakes in what a row may see and where it sees it. Derived classes change copies of the arrays.
class PlantedVisibility : public ForwardingBackend {
 public:
  PlantedVisibility(std::unique_ptr<kernels::Backend> inner, const RunConfig& config)
      : ForwardingBackend(std::move(inner)),
        half_len_(static_cast<int32_t>(config.sampling.reuse_len)),
        memory_rows_(config.model.mem_len) {}

  void AttentionForward(const kernels::AttentionForwardArgs& args, StreamView stream) override {
    kernels::AttentionForwardArgs planted = args;
    Change(planted.in);
    ForwardingBackend::AttentionForward(planted, stream);
  }
  void AttentionBackward(const kernels::AttentionBackwardArgs& args, StreamView stream) override {
    kernels::AttentionBackwardArgs planted = args;
    Change(planted.in);
    ForwardingBackend::AttentionBackward(planted, stream);
  }

 protected:
  // Arrays of one call: all rows, all keys.
  struct Arrays {
    std::vector<int32_t> row_lim, row_seg, key_pos, key_key, key_seg;
    int64_t first_query_row = 0;
    int64_t keys_per_lane = 0;
  };
  virtual void Plant(Arrays& arrays) const = 0;

  const int32_t half_len_;
  const int64_t memory_rows_;

 private:
  void Change(kernels::AttentionInputs& in) {
    const int64_t rows = in.shape.num_rows();
    const int64_t keys = in.shape.batch_size * in.shape.num_keys;
    in.rows.lim = Copied(in.rows.lim, rows, arrays_.row_lim);
    in.rows.seg = Copied(in.rows.seg, rows, arrays_.row_seg);
    in.keys.pos = Copied(in.keys.pos, keys, arrays_.key_pos);
    in.keys.key = Copied(in.keys.key, keys, arrays_.key_key);
    in.keys.seg = Copied(in.keys.seg, keys, arrays_.key_seg);
    arrays_.first_query_row = in.shape.batch_size * in.shape.content_rows;
    arrays_.keys_per_lane = in.shape.num_keys;
    Plant(arrays_);
  }

  Arrays arrays_;
};

// A query row sees ranks <= its own: the token that it is to predict.
class QueryRankNotStrict final : public PlantedVisibility {
 public:
  using PlantedVisibility::PlantedVisibility;

 private:
  void Plant(Arrays& arrays) const override {
    for (size_t row = arrays.first_query_row; row < arrays.row_lim.size(); ++row) {
      if (arrays.row_lim[row] >= 0) ++arrays.row_lim[row];  // padding sees nothing
    }
  }
};

// The first half sees the second one's context: transformers' collator, whose context is visible
// everywhere.
class SecondHalfOpen final : public PlantedVisibility {
 public:
  using PlantedVisibility::PlantedVisibility;

 private:
  void Plant(Arrays& arrays) const override {
    const int32_t second_context = half_len_ + 1;
    std::replace(arrays.key_key.begin(), arrays.key_key.end(), second_context, 0);
  }
};

// Every row takes memory for another segment than its own.
class MemoryOfOtherSegment final : public PlantedVisibility {
 public:
  using PlantedVisibility::PlantedVisibility;

 private:
  void Plant(Arrays& arrays) const override {
    for (size_t key = 0; key < arrays.key_seg.size(); ++key) {
      if (static_cast<int64_t>(key) % arrays.keys_per_lane < memory_rows_) arrays.key_seg[key] = -1;
    }
  }
};

// CLS, which has a segment of its own, is counted into B's.
class ClsInSegmentB final : public PlantedVisibility {
 public:
  using PlantedVisibility::PlantedVisibility;

 private:
  void Plant(Arrays& arrays) const override {
    std::replace(arrays.row_seg.begin(), arrays.row_seg.end(), 2, 1);
    std::replace(arrays.key_seg.begin(), arrays.key_seg.end(), 2, 1);
  }
};

// Memory stands one position too near.
class MemoryOffByOne final : public PlantedVisibility {
 public:
  using PlantedVisibility::PlantedVisibility;

 private:
  void Plant(Arrays& arrays) const override {
    for (int32_t& position : arrays.key_pos) {
      if (position < 0) ++position;
    }
  }
};

// "same" and "different" of the segment term are exchanged.
class SegmentsExchanged final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  void AttentionForward(const kernels::AttentionForwardArgs& args, StreamView stream) override {
    kernels::AttentionForwardArgs planted = args;
    planted.in.segment_embedding = Exchanged(args.in.segment_embedding);
    ForwardingBackend::AttentionForward(planted, stream);
  }
  void AttentionBackward(const kernels::AttentionBackwardArgs& args, StreamView stream) override {
    kernels::AttentionBackwardArgs planted = args;
    planted.in.segment_embedding = Exchanged(args.in.segment_embedding);
    ForwardingBackend::AttentionBackward(planted, stream);
    float* const gradient = args.dsegment_embedding.data<float>();
    const int64_t size = args.dsegment_embedding.num_elements();
    std::rotate(gradient, gradient + size / 2, gradient + size);
  }

 private:
  ConstTensorView Exchanged(const ConstTensorView& embedding) {
    const int64_t size = embedding.num_elements();
    float* const rows = Copied(embedding.data<float>(), size, storage_);
    std::rotate(rows, rows + size / 2, rows + size);
    return ConstTensorView(rows, embedding.shape());
  }

  std::vector<float> storage_;
};

// The attention biases are added after scaling, not before.
class BiasesAfterScale final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  void AttentionForward(const kernels::AttentionForwardArgs& args, StreamView stream) override {
    kernels::AttentionForwardArgs planted = args;
    Unscale(planted.in);
    ForwardingBackend::AttentionForward(planted, stream);
  }
  void AttentionBackward(const kernels::AttentionBackwardArgs& args, StreamView stream) override {
    kernels::AttentionBackwardArgs planted = args;
    Unscale(planted.in);
    ForwardingBackend::AttentionBackward(planted, stream);
    for (const TensorView& gradient :
         {args.dcontent_bias, args.dposition_bias, args.dsegment_bias}) {
      for (int64_t i = 0; i < gradient.num_elements(); ++i)
        gradient.data<float>()[i] /= args.in.scale;
    }
  }

 private:
  void Unscale(kernels::AttentionInputs& in) {
    ConstTensorView* const biases[] = {&in.content_bias, &in.position_bias, &in.segment_bias};
    for (size_t which = 0; which < 3; ++which) {
      const int64_t size = biases[which]->num_elements();
      float* const copy = Copied(biases[which]->data<float>(), size, storage_[which]);
      for (int64_t i = 0; i < size; ++i)
        copy[i] /= in.scale;
      *biases[which] = ConstTensorView(copy, biases[which]->shape());
    }
  }

  std::vector<float> storage_[3];
};

// The tied embedding learns as the softmax only: the gradient of what the network reads is lost. No
// loss shows it at once.
class InputGradientLost final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void EmbeddingBackward(const kernels::EmbeddingBackwardArgs&, StreamView) override {}
};

// Weight decay on LayerNorm and biases, too.
class DecaysAll final : public ForwardingBackend {
 public:
  DecaysAll(std::unique_ptr<kernels::Backend> inner, const RunConfig& config)
      : ForwardingBackend(std::move(inner)), weight_decay_(config.optimizer.weight_decay) {}
  void AdamW(const kernels::AdamWArgs& args, StreamView stream) override {
    kernels::AdamWArgs planted = args;
    planted.weight_decay = weight_decay_;
    ForwardingBackend::AdamW(planted, stream);
  }

 private:
  const double weight_decay_;
};

using Maker = std::unique_ptr<kernels::Backend> (*)(std::unique_ptr<kernels::Backend>,
                                                    const RunConfig&);

template <typename Plant>
std::unique_ptr<kernels::Backend> Make(std::unique_ptr<kernels::Backend> inner,
                                       const RunConfig& config) {
  if constexpr (std::is_constructible_v<Plant, std::unique_ptr<kernels::Backend>,
                                        const RunConfig&>) {
    return std::make_unique<Plant>(std::move(inner), config);
  } else {
    return std::make_unique<Plant>(std::move(inner));
  }
}

template <bool all_lanes>
std::unique_ptr<kernels::Backend> MakeDistance(std::unique_ptr<kernels::Backend> inner,
                                               const RunConfig& config) {
  return std::make_unique<PlantedDistance>(std::move(inner), config, all_lanes);
}

constexpr std::pair<const char*, Maker> kPlants[] = {
    {"none", Make<ForwardingBackend>},
    {"shift-sign", MakeDistance<true>},
    {"backward-sign", MakeDistance<false>},
    {"memory-off-by-one", Make<MemoryOffByOne>},
    {"memory-segment", Make<MemoryOfOtherSegment>},
    {"cls-segment", Make<ClsInSegmentB>},
    {"segments-exchanged", Make<SegmentsExchanged>},
    {"query-rank", Make<QueryRankNotStrict>},
    {"second-half-open", Make<SecondHalfOpen>},
    {"biases-after-scale", Make<BiasesAfterScale>},
    {"input-gradient-lost", Make<InputGradientLost>},
    {"decays-all", Make<DecaysAll>},
};

}  // namespace

std::vector<std::string> PlantNames() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : kPlants)
    names.emplace_back(name);
  return names;
}

absl::StatusOr<std::unique_ptr<kernels::Backend>> MakePlantedBackend(
    const std::string& plant, const RunConfig& config, std::unique_ptr<kernels::Backend> inner) {
  for (const auto& [name, maker] : kPlants) {
    if (plant == name) return maker(std::move(inner), config);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no plant '", plant, "'; there are ", absl::StrJoin(PlantNames(), ", ")));
}

}  // namespace anyorder
