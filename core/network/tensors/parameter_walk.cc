#include "core/network/tensors/parameter_walk.h"

#include <algorithm>
#include <numeric>
#include <type_traits>

namespace anyorder {

namespace {

// The views of one kind of tensors, handed out from both flat spaces as the walk goes.
template <typename View>
struct Places {
  const FlatSpaces<View>& flat;
  int64_t trained = 0;  // where the next one begins
  int64_t frozen = 0;

  View Take(const WalkedParameter& parameter) {
    constexpr bool kIsGradient = std::is_same_v<View, TensorView>;
    if (kIsGradient && parameter.is_frozen && !parameter.always_written) return View();
    int64_t& offset = parameter.is_frozen ? frozen : trained;
    const FlatSpace<View>& space = parameter.is_frozen ? flat.frozen : flat.trained;
    const View place = space.Slice(offset, parameter.matrix);
    offset += parameter.shape.num_elements();
    return place;
  }
};

}  // namespace

template <typename View>
void BindTensors(const NetworkShape& shape, const FlatSpaces<View>& flat,
                 NetworkTensors<View>* tensors) {
  Places<View> places{flat};
  const auto bind = [&places](View* view, const WalkedParameter& parameter) {
    const View place = places.Take(parameter);
    if (view != nullptr) *view = place;
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
    tensors->embedding =
        View(clusters[0].table.raw(), flat.trained.dtype(), {rows, model.model_dim});
  }
}
template void BindTensors(const NetworkShape&, const FlatSpaces<ConstTensorView>&, NetworkWeights*);
template void BindTensors(const NetworkShape&, const FlatSpaces<TensorView>&, NetworkGradients*);

ParameterLayout::ParameterLayout(const ModelConfig& config, int64_t vocab_size) {
  struct NoView {};
  NetworkTensors<NoView> none;
  const int64_t num_layers = config.num_layers;
  const auto add = [this, num_layers](const NoView*, const WalkedParameter& parameter) {
    const ParameterInit init = parameter.init;
    const bool decays = init != ParameterInit::kZeros && init != ParameterInit::kGains;
    int64_t& offset = parameter.is_frozen ? num_frozen_elements_ : num_elements_;
    EnterWindow(parameter.window(num_layers));
    (parameter.is_frozen ? frozen_ : parameters_)
        .push_back(
            {parameter.name(), parameter.shape, offset, init, decays, parameter.layers_above});
    offset += parameter.shape.num_elements();
  };
  ParameterWalk(config, vocab_size, none, add);
  EnterWindow(num_layers + 1);
  by_name_.resize(parameters_.size());
  std::iota(by_name_.begin(), by_name_.end(), size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [this](size_t a, size_t b) { return parameters_[a].name < parameters_[b].name; });
}

}  // namespace anyorder
