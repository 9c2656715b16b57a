#include "core/network/tensors/layer_tensors.h"

#include "core/network/tensors/parameter_walk.h"

namespace anyorder {

namespace {

template <typename View>
void Bind(const NetworkShape& shape, View flat, NetworkTensors<View>* tensors) {
  int64_t offset = 0;
  const auto bind = [&](View* view, const WalkedParameter& parameter) {
    if (view != nullptr) *view = flat.Slice(offset, parameter.matrix);
    offset += parameter.shape.num_elements();
  };
  const ModelConfig& model = shape.model;
  ParameterWalk(model, shape.vocab_size, *tensors, bind);
  const LayerTensors<View>& first = tensors->layers.front();
  for (LayerTensors<View>& layer : tensors->layers) {
    layer.distance_bias = first.distance_bias;
    if (model.untie_r) continue;
    layer.content_bias = first.content_bias;
    layer.position_bias = first.position_bias;
    layer.segment_bias = first.segment_bias;
  }
  std::vector<ClusterTensors<View>>& clusters = tensors->clusters;
  for (size_t i = 1; i < clusters.size() && model.tie_projections; ++i)
    clusters[i].output_projection = clusters[i].input_projection;
  // The head's words, the clusters' vectors and the other clusters' words follow one another.
  if (model.adaptive() && !model.projects_clusters()) {
    const auto rows = shape.vocab_size + static_cast<int64_t>(clusters.size()) - 1;
    tensors->embedding = View(clusters[0].table.raw(), flat.dtype(), {rows, model.model_dim});
  }
}

}  // namespace

void BindTensors(const NetworkShape& shape, ConstTensorView flat, NetworkWeights* tensors) {
  Bind(shape, flat, tensors);
}

void BindTensors(const NetworkShape& shape, TensorView flat, NetworkGradients* tensors) {
  Bind(shape, flat, tensors);
}

}  // namespace anyorder
