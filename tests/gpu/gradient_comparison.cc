#include "tests/gpu/gradient_comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "tests/bench/gpu/cases.h"
#include "tests/core/network/model_testing.h"
#include "tests/testing/dithered.h"

namespace anyorder::testing {
namespace {

constexpr double kFactor = 3;

// Sums of squares over the samples.
struct Squares {
  double difference = 0;
  double norm = 0;

  void Add(const std::vector<double>& value, const std::vector<double>& base, int64_t begin,
           int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      difference += (value[i] - base[i]) * (value[i] - base[i]);
      norm += base[i] * base[i];
    }
  }
  // 0 where there is nothing to differ from: a parameter out of use.
  double Relative() const {
    return difference == 0 && norm == 0 ? 0 : std::sqrt(difference / norm);
  }
};

struct Deviations {
  Squares losses, memory;
  std::vector<Squares> tensors;

  void Add(const ModelRunner::Result& result, const ModelRunner::Result& base,
           const ParameterLayout& layout) {
    const auto wide = [](const std::vector<float>& x) {
      return std::vector<double>(x.begin(), x.end());
    };
    losses.Add(wide(result.losses), wide(base.losses), 0, base.losses.size());
    memory.Add(result.memory, base.memory, 0, base.memory.size());
    tensors.resize(layout.parameters().size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const ParameterInfo& info = layout.parameters()[i];
      tensors[i].Add(result.gradients, base.gradients, info.offset, info.end());
    }
  }
};

ModelConfig Model(const bench::XlnetSize& size, DType dtype) {
  ModelConfig model = bench::ModelOf(size, 0.1);
  // About 1 / sqrt(model_dim): with smaller weights attention is uniform, and its gradients are
  // lost in everybody's rounding.
  model.init_range = 0.06;
  model.dtype = dtype == DType::kBFloat16 ? ComputeType::kBFloat16 : ComputeType::kFloat32;
  return model;
}

}  // namespace

std::vector<TensorDeviation> CompareWithCpu(kernels::Backend& device, DType dtype,
                                            const ComparedNetwork& network, uint64_t seed) {
  const bench::XlnetSize& size = network.size;
  const ModelConfig model = Model(size, DType::kFloat32);
  const auto objective = MakeObjectiveOrDie("permutation_lm", model, bench::SamplingOf(size));
  const Batch batch = bench::DrawBatch(*objective, size, network.lanes, static_cast<int64_t>(seed));

  const std::unique_ptr<kernels::Backend> cpu = kernels::MakeCpuBackend({.num_threads = 2}).value();
  const auto runner = [&](kernels::Backend& backend, DType type) {
    return ModelRunner(Model(size, type), size.vocab, batch.shape, backend);
  };
  ModelRunner exact = runner(*cpu, DType::kFloat32);
  ModelRunner rounded = runner(*cpu, DType::kBFloat16);
  ModelRunner checked = runner(device, dtype);

  const std::vector<double> weights = InitialWeights(model, size.vocab, 1000 * seed);
  const std::vector<double> memory = RandomVector(exact.memory_size(), 1000 * seed + 1);
  Deviations of_cpu, of_device;
  for (int64_t sample = 0; sample < network.samples; ++sample) {
    const std::vector<double> near_weights = Dithered(weights, 1000 * seed + 100 + sample);
    const std::vector<double> near_memory = Dithered(memory, 1000 * seed + 200 + sample);
    const ModelRunner::Result base = exact.Run(batch, near_weights, near_memory, true, seed);
    of_cpu.Add(rounded.Run(batch, near_weights, near_memory, true, seed), base, exact.layout());
    of_device.Add(checked.Run(batch, near_weights, near_memory, true, seed), base, exact.layout());
  }

  const int64_t longest = std::max({size.ffn_dim, size.model_dim, network.lanes * size.keys()});
  const double factor =
      dtype == DType::kBFloat16 ? kFactor : kFactor * std::ldexp(static_cast<double>(longest), -16);
  std::vector<TensorDeviation> deviations;
  const auto add = [&](const std::string& name, const Squares& found, const Squares& allowed) {
    deviations.push_back({name, found.Relative(), factor * allowed.Relative()});
  };
  add("losses", of_device.losses, of_cpu.losses);
  add("memory", of_device.memory, of_cpu.memory);
  for (size_t i = 0; i < of_device.tensors.size(); ++i)
    add(exact.layout().parameters()[i].name, of_device.tensors[i], of_cpu.tensors[i]);
  return deviations;
}

void ExpectAgreesWithCpu(kernels::Backend& device, DType dtype, const ComparedNetwork& network,
                         uint64_t seed) {
  for (const TensorDeviation& tensor : CompareWithCpu(device, dtype, network, seed)) {
    std::printf("{\"tensor\": \"%s, %s, seed %d\", \"relative_l2\": %.3g, \"bound\": %.3g}\n",
                tensor.name.c_str(), std::string(Name(dtype)).c_str(), static_cast<int>(seed),
                tensor.relative_l2, tensor.bound);
    EXPECT_TRUE(tensor.passed()) << tensor.name << ", " << Name(dtype) << ", seed " << seed << ": "
                                 << tensor.relative_l2 << " is beyond " << tensor.bound;
  }
}

}  // namespace anyorder::testing
