// What a file of golden/ holds, and how near to it our numbers are: golden/FORMAT.md.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "ckpt/safetensors.h"
#include "core/base/check.h"
#include "core/network/tensors/parameters.h"

namespace anyorder::testing {

class GoldenFile {
 public:
  // golden/NAME.safetensors.
  explicit GoldenFile(const std::string& name)
      : reader_(ckpt::SafetensorsReader::Open(PathOf(name)).value()) {}

  int64_t Number(const std::string& key) const {
    int64_t value = 0;
    EXPECT_TRUE(absl::SimpleAtoi(Text(key), &value)) << key;
    return value;
  }
  const std::string& Text(const std::string& key) const { return reader_.metadata().at(key); }
  int64_t num_tensors() const { return static_cast<int64_t>(reader_.tensors().size()); }
  template <typename T>
  std::vector<T> Values(const std::string& name) const {
    const ckpt::SafetensorsTensor* const tensor = reader_.Find(name);
    if (tensor == nullptr) {
      ADD_FAILURE() << "no tensor " << name;
      return {};
    }
    std::vector<T> values(static_cast<size_t>(tensor->entry.shape.num_elements()));
    const absl::Status status =
        reader_.Read(name, 0, static_cast<int64_t>(values.size()), values.data());
    EXPECT_TRUE(status.ok()) << status.message();
    return values;
  }

  // `tolerance` is relative to the largest value.
  template <typename Ours>
  void ExpectNear(const std::vector<Ours>& ours, const std::string& name, double tolerance) const {
    const std::vector<float> theirs = Values<float>(name);
    ASSERT_EQ(ours.size(), theirs.size()) << name;
    double largest = 0;
    double worst = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      const double difference = std::fabs(static_cast<double>(ours[i]) - theirs[i]);
      largest = std::max(largest, std::fabs(static_cast<double>(theirs[i])));
      worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
    }
    EXPECT_LE(worst, tolerance * largest)
        << name << ": off by " << worst << ", largest value " << largest;
  }

 private:
  static std::string PathOf(const std::string& name) {
    const char* const source = std::getenv("ANYORDER_SOURCE");
    ANYORDER_CHECK(source != nullptr) << "set ANYORDER_SOURCE to the root of the sources";
    return absl::StrCat(source, "/tests/parity/golden/", name, ".safetensors");
  }

  ckpt::SafetensorsReader reader_;
};

// Two implementations add in different orders: some 10 rounded operations a layer, each on sums of
// up to `widest` products, differ by about layers * 10 * sqrt(widest) units of rounding.
inline double RoundingTolerance(int64_t layers, int64_t widest) {
  return static_cast<double>(layers) * 10 * std::sqrt(static_cast<double>(widest)) * 0x1p-24;
}

// Section "Weights": all of a network's, each of which two implementations compute alike from its
// name.
inline std::vector<float> HashedWeights(const ParameterLayout& layout) {
  std::vector<float> weights(static_cast<size_t>(layout.num_elements()));
  for (const ParameterInfo& info : layout.parameters()) {
    uint32_t key = 2166136261u;
    for (const char c : info.name) key = (key ^ static_cast<uint8_t>(c)) * 16777619u;
    const bool is_scale = absl::EndsWith(info.name, "layer_norm.weight");
    for (int64_t i = 0; i < info.shape.num_elements(); ++i) {
      uint32_t x = static_cast<uint32_t>(i) * 0x9E3779B9u + key;
      x = (x ^ (x >> 16)) * 0x7FEB352Du;
      x = (x ^ (x >> 15)) * 0x846CA68Bu;
      x ^= x >> 16;
      const double unit = static_cast<double>(x >> 8) / 8388608.0 - 1.0;
      weights[info.offset + i] = static_cast<float>(is_scale ? 1.0 + unit / 4 : unit / 2);
    }
  }
  return weights;
}

}  // namespace anyorder::testing
