// Buckets of distance against those of transformers' T5Attention._relative_position_bucket (5.23,
// torch 2.15).

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "core/network/layers/positions.h"

namespace anyorder {
namespace {

ModelConfig Model(PositionBias bias, int64_t buckets, int64_t max_distance) {
  return {.position_bias = bias,
          .position_buckets = buckets,
          .position_bias_max_distance = max_distance};
}

// relative_position = key - query, as both have it.
TEST(DistanceBiasTest, BucketsAreT5s) {
  const std::vector<std::pair<int64_t, std::pair<int64_t, int64_t>>> expected = {
      {-1000, {15, 31}}, {-129, {15, 31}}, {-128, {15, 31}}, {-127, {15, 31}}, {-91, {15, 29}},
      {-90, {14, 29}},   {-64, {14, 26}},  {-63, {13, 26}},  {-46, {13, 24}},  {-45, {12, 23}},
      {-32, {12, 21}},   {-31, {11, 21}},  {-23, {11, 18}},  {-22, {10, 18}},  {-16, {10, 16}},
      {-15, {9, 15}},    {-12, {9, 12}},   {-11, {8, 11}},   {-8, {8, 8}},     {-7, {7, 7}},
      {-1, {1, 1}},      {0, {0, 0}},      {1, {17, 0}},     {7, {23, 0}},     {8, {24, 0}},
      {11, {24, 0}},     {12, {25, 0}},    {15, {25, 0}},    {16, {26, 0}},    {22, {26, 0}},
      {23, {27, 0}},     {31, {27, 0}},    {32, {28, 0}},    {45, {28, 0}},    {46, {29, 0}},
      {63, {29, 0}},     {64, {30, 0}},    {90, {30, 0}},    {91, {31, 0}},    {127, {31, 0}},
      {128, {31, 0}},    {1000, {31, 0}}};
  const ModelConfig both = Model(PositionBias::kT5, 32, 128);
  const ModelConfig causal = Model(PositionBias::kT5Causal, 32, 128);
  for (const auto& [relative, buckets] : expected) {
    EXPECT_EQ(DistanceBucket(both, relative), buckets.first) << relative;
    EXPECT_EQ(DistanceBucket(causal, relative), buckets.second) << relative;
  }
}

TEST(DistanceBiasTest, BucketsOfOddSizesAreT5s) {
  const std::vector<int64_t> expected = {
      5, 5, 5, 5, 5, 5,  5,  5,  5,  5,  5,  5,  5,  5,  4,  4,  4,  4,  4,  3,  3,  3,  2,  1, 0,
      7, 8, 9, 9, 9, 10, 10, 10, 10, 10, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11};
  const ModelConfig model = Model(PositionBias::kT5, 12, 20);
  for (int64_t relative = -24; relative <= 24; ++relative)
    EXPECT_EQ(DistanceBucket(model, relative), expected[static_cast<size_t>(relative + 24)])
        << relative;
}

// What the table of distances relies on: nothing changes from the maximum on, and no bucket is out
// of range or out of order.
TEST(DistanceBiasTest, DistancesFromTheMaximumOnShareABucket) {
  for (const PositionBias bias : {PositionBias::kT5, PositionBias::kT5Causal}) {
    for (const auto& [buckets, max_distance] : std::vector<std::pair<int64_t, int64_t>>{
             {4, 3}, {8, 5}, {12, 50}, {32, 17}, {32, 128}, {64, 128}, {128, 1000}}) {
      const ModelConfig model = Model(bias, buckets, max_distance);
      std::set<int64_t> used;
      for (int64_t distance = 0; distance <= 3 * max_distance; ++distance) {
        for (const int64_t relative : {-distance, distance}) {
          const int64_t bucket = DistanceBucket(model, relative);
          EXPECT_GE(bucket, 0);
          EXPECT_LT(bucket, buckets);
          if (distance > 0) {
            EXPECT_GE(bucket, DistanceBucket(model, relative < 0 ? relative + 1 : relative - 1));
          }
          if (distance > max_distance) {
            EXPECT_EQ(bucket, DistanceBucket(model, relative < 0 ? -max_distance : max_distance));
          }
          used.insert(bucket);
        }
      }
      EXPECT_TRUE(used.contains(0) && used.contains(buckets - 1)) << buckets << " " << max_distance;
    }
  }
}

}  // namespace
}  // namespace anyorder
