// Visibility arrays of the objectives that the fused attention must serve, as test cases.

#pragma once

#include <algorithm>
#include <cctype>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tests/kernels/attention_case.h"

namespace anyorder::kernels::testing {

inline std::vector<int32_t> Permutation(int64_t count, RandomStream* random) {
  std::vector<int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = count - 1; i > 0; --i)
    std::swap(order[i], order[random->Below(static_cast<uint32_t>(i + 1))]);
  return order;
}

inline void AddMemory(int32_t memory, Slots* keys) {
  for (int32_t j = 0; j < memory; ++j) keys->Add(j - memory, -1, -1, kDocAny, 0);
}

// XLNet pretraining: two halves with a factorisation order each (the second half sees the first),
// memory, about a sixth of the slots as query rows, three segments. Lane 1 reads the other
// direction's table.
inline AttentionCase XlnetCase(int32_t memory, int32_t length, int64_t heads, int64_t head_dim) {
  AttentionCase c;
  c.name = "xlnet";
  RandomStream random(11, RandomPurpose::kPermutation, 0, 0);
  for (int lane = 0; lane < 2; ++lane) {
    Slots content, query, keys;
    AddMemory(memory, &keys);
    const int32_t half = length / 2;
    std::vector<int32_t> rank = Permutation(half, &random);
    for (const int32_t r : Permutation(length - half, &random)) rank.push_back(half + r);
    for (int32_t i = 0; i < length; ++i) {
      const int32_t segment = i < length / 3 ? 0 : i < length - 1 ? 1 : 2;
      content.Add(i, rank[i], -1, 0, segment);
      keys.Add(i, rank[i], -1, 0, segment);
      if (i % 6 == (i / 7) % 3) query.Add(i, rank[i] - 1, -1, 0, segment);
    }
    c.AddLane(content, query, keys);
  }
  c.Finish(heads, head_dim, 2);
  return c;
}

// Two lanes with content and query rows, memory, segments and heads of 64. Keys of the second lane
// are not in the order of their slots: the GPU's two families of kernels (kernels/cuda/README.md)
// have a lane each.
inline AttentionCase BothFamiliesCase(int64_t heads) {
  AttentionCase c = XlnetCase(20, 60, heads, 64);
  c.keys[1].pos[30] += 1;
  return c;
}

// Rows of one stream over their own slots: `order(i)` is lim and key of slot i.
template <typename Order>
AttentionCase OneStreamCase(const char* name, int32_t memory, int32_t length, Order order) {
  AttentionCase c;
  c.name = name;
  for (int lane = 0; lane < 2; ++lane) {
    Slots content, keys;
    AddMemory(memory, &keys);
    for (int32_t i = 0; i < length; ++i) {
      content.Add(i, order(i));
      keys.Add(i, order(i));
    }
    c.AddLane(content, {}, keys);
  }
  return c;
}

inline AttentionCase CausalCase(int32_t memory, int32_t length) {
  AttentionCase c = OneStreamCase("causal", memory, length, [](int32_t i) { return i; });
  c.segments = false;
  c.Finish(2, 64, 1);
  // A table of past distances only: what lies ahead is never seen, so it needs no rows.
  c.shape.num_distances = memory + length;
  c.min_distance = 0;
  return c;
}

inline AttentionCase BidirectionalCase(int32_t length) {
  AttentionCase c = OneStreamCase("bidirectional", 0, length, [](int32_t) { return 0; });
  c.biases = false;
  c.segments = false;
  c.Finish(2, 32, 0);
  return c;
}

inline AttentionCase SequenceToSequenceCase(int32_t source, int32_t length) {
  AttentionCase c = OneStreamCase("seq2seq", 0, length,
                                  [source](int32_t i) { return std::max(0, i - source + 1); });
  c.Finish(1, 24, 1);
  return c;
}

// Three documents in a row and padding at the end; positions start anew in each.
inline AttentionCase PackedCase() {
  AttentionCase c;
  c.name = "packed";
  for (int lane = 0; lane < 2; ++lane) {
    Slots content, query, keys;
    for (int32_t doc = 0; doc < 4; ++doc) {
      const int32_t length = doc == 3 ? 23 : 40 + 30 * doc;
      for (int32_t i = 0; i < length; ++i) {
        const int32_t id = doc == 3 ? kDocPad : doc;
        content.Add(i, i, -1, id, i % 3);
        keys.Add(i, i, -1, id, i % 3);
        if (i % 9 == 4) query.Add(i, i - 1, -1, id, i % 3);
      }
    }
    c.AddLane(content, query, keys);
  }
  c.Finish(2, 48, 2);
  return c;
}

// UniLMv2 and block diffusion: query slots are keys too, seen only by their own group.
inline AttentionCase GroupCase() {
  AttentionCase c;
  c.name = "groups";
  RandomStream random(12, RandomPurpose::kSpans, 0, 0);
  for (int lane = 0; lane < 2; ++lane) {
    Slots content, query, keys, masks;
    for (int32_t i = 0; i < 130; ++i) {
      const bool predicted = random.Below(3) == 0;
      const int32_t rank = predicted ? 1 + static_cast<int32_t>(random.Below(9)) : 0;
      content.Add(i, rank);
      keys.Add(i, rank);
      if (i % 4 == 1) {
        query.Add(i, std::max(rank, 1) - 1, i / 8);
        masks.Add(i, kKeyNever, i / 8);
      }
    }
    keys.Append(masks);
    c.AddLane(content, query, keys);
  }
  c.Finish(2, 64, 1);
  return c;
}

// Longformer: a window per head, one of them dilated, one to the past only, and a few global slots.
inline AttentionCase BandCase() {
  AttentionCase c = OneStreamCase("bands", 0, 300, [](int32_t) { return 0; });
  for (size_t lane = 0; lane < 2; ++lane) {
    for (const size_t slot : {size_t{3}, size_t{200}}) {
      if (lane == 1 && slot == 200) continue;
      c.content[lane].glob[slot] = 1;
      c.keys[lane].glob[slot] = 1;
    }
  }
  c.segments = false;
  c.Finish(4, 32, 1);
  c.bands = {{16, 16, 1}, {5, 7, 3}, {40, 0, 1}, {-1, 3, 2}};
  return c;
}

// Everything at random, positions too: what holds here holds for any objective.
inline AttentionCase RandomCase(uint64_t seed) {
  AttentionCase c;
  c.name = "random" + std::to_string(seed);
  RandomStream random(seed, RandomPurpose::kCorruption, 0, 0);
  const auto below = [&](uint32_t bound) { return static_cast<int32_t>(random.Below(bound)); };
  const int32_t num_content = below(90);
  const int32_t num_query = below(60) + (num_content == 0 ? 1 : 0);
  const int32_t num_keys = 1 + below(200);
  const bool ordered = below(2) == 0;  // contiguous stretches with jumps, else any positions
  const auto slots = [&](int32_t count) {
    Slots s;
    int32_t pos = below(20) - 10;
    for (int32_t i = 0; i < count; ++i) {
      pos = ordered ? pos + 1 + (below(40) == 0 ? below(9) - 4 : 0) : below(100) - 50;
      const int32_t doc = below(12);
      s.Add(pos, below(12), below(4) - 1,
            doc == 0   ? kDocPad
            : doc == 1 ? kDocAny
                       : doc % 3,
            below(3), below(15) == 0);
    }
    return s;
  };
  for (int lane = 0; lane < 1 + static_cast<int>(seed % 3); ++lane) {
    c.content.push_back(slots(num_content));
    c.query.push_back(slots(num_query));
    c.keys.push_back(slots(num_keys));
  }
  c.biases = below(4) != 0;
  c.segments = below(3) != 0;
  c.dropout_rate = below(2) == 0 ? 0.0 : 0.25;
  constexpr int64_t kHeadDims[] = {1, 16, 24, 41, 64, 80};
  const int64_t heads = 1 + below(3);
  c.Finish(heads, kHeadDims[below(6)], below(4));
  for (int64_t head = 0; head < heads && seed % 2 == 0; ++head)
    c.bands.push_back({below(60) - 10, below(60) - 10, 1 + below(3) / 2});
  for (Band& band : c.bands) {
    band.left = std::max(band.left, -1);
    band.right = std::max(band.right, -1);
  }
  if (below(2) == 0) {
    const int32_t low = below(60) - 50;
    c.AddDistanceBias(low, 1 + below(80));
  }
  return c;
}

// Each head of `c` becomes a key/value head that `sharing` heads read. Windows are dealt out again,
// so that these differ.
inline AttentionCase SharedBy(int64_t sharing, AttentionCase c) {
  c.name += " shared by " + std::to_string(sharing);
  c.shape.num_kv_heads = c.shape.num_heads;
  c.shape.num_heads *= sharing;
  const std::vector<Band> bands = c.bands;
  while (!bands.empty() && static_cast<int64_t>(c.bands.size()) < c.shape.num_heads)
    c.bands.push_back(bands[c.bands.size() % bands.size()]);
  return c;
}

// RandomCase of shared keys, among them a single key/value head.
inline AttentionCase RandomSharedCase(uint64_t seed) {
  constexpr int64_t kSharing[] = {2, 3, 4, 7};
  return SharedBy(kSharing[seed % 4], RandomCase(seed));
}

inline Slots Shuffled(const Slots& slots, RandomStream* random) {
  Slots shuffled;
  for (const int32_t i : Permutation(static_cast<int64_t>(slots.pos.size()), random))
    shuffled.AddSlot(slots, i);
  return shuffled;
}

// Contiguous keys, rows in any order and far apart.
inline AttentionCase ShuffledRowsCase() {
  AttentionCase c = XlnetCase(64, 150, 2, 32);
  c.name = "shuffled rows";
  RandomStream random(13, RandomPurpose::kPermutation, 0, 0);
  for (std::vector<Slots>* streams : {&c.content, &c.query}) {
    for (Slots& rows : *streams) rows = Shuffled(rows, &random);
  }
  return c;
}

// Shuffled keys as well.
inline AttentionCase ShuffledKeysCase() {
  AttentionCase c = ShuffledRowsCase();
  c.name = "shuffled keys";
  RandomStream random(14, RandomPurpose::kPermutation, 0, 0);
  for (Slots& keys : c.keys) keys = Shuffled(keys, &random);
  return c;
}

// Query rows only, as where the last layer needs no others.
inline AttentionCase WithoutContentRows(AttentionCase c) {
  for (Slots& rows : c.content) rows = Slots();
  c.shape.content_rows = 0;
  return c;
}

inline AttentionCase WithoutKeys(AttentionCase c) {
  for (Slots& keys : c.keys) keys = Slots();
  c.shape.num_keys = 0;
  return c;
}

// Of 100 slots, some rows of lane 0 and all content rows of lane 1 see nothing.
inline AttentionCase BlindRowsCase(int64_t heads) {
  AttentionCase c = XlnetCase(0, 100, heads, 64);
  for (size_t i = 10; i < 70; ++i) c.content[0].order[i] = -5;
  for (int32_t& doc : c.content[1].doc) doc = 9;
  return c;
}

// Positions at both ends of their type: their differences overflow 32 bits, and the bands must
// still be exact.
inline AttentionCase FarPositionsCase() {
  AttentionCase c = OneStreamCase("far", 0, 70, [](int32_t) { return 0; });
  for (size_t lane = 0; lane < 2; ++lane) {
    for (size_t i = 0; i < 70; ++i) {
      const int32_t offset = static_cast<int32_t>(i);
      const int32_t pos = i % 2 == 0 ? std::numeric_limits<int32_t>::max() - offset
                                     : std::numeric_limits<int32_t>::min() + offset;
      c.content[lane].pos[i] = pos;
      c.keys[lane].pos[i] = pos;
    }
  }
  c.Finish(2, 16, 0);
  c.bands = {{10, 10, 1}, {std::numeric_limits<int32_t>::max(), 0, 1}};
  return c;
}

// A bias by distance without a relative term, and T5's range of distances unless said otherwise.
inline AttentionCase WithBias(AttentionCase c, int64_t low = -128, int64_t count = 257) {
  c.name += " with bias";
  c.shape.num_distances = 0;
  c.AddDistanceBias(low, count);
  return c;
}

// The objectives' visibility and whatever else sends an implementation another way; streams of
// `length` slots where no objective says how many.
inline std::vector<AttentionCase> AllScenarios(int32_t length) {
  AttentionCase bias_beside_relative = XlnetCase(40, 70, 2, 64);
  bias_beside_relative.name = "xlnet with bias";
  bias_beside_relative.AddDistanceBias(-20, 70);
  return {XlnetCase(96, 130, 2, 64),
          XlnetCase(0, 101, 2, 64),
          CausalCase(70, length),
          BidirectionalCase(length),
          SequenceToSequenceCase(60, length),
          PackedCase(),
          GroupCase(),
          BandCase(),
          ShuffledRowsCase(),
          ShuffledKeysCase(),
          WithoutContentRows(XlnetCase(40, 90, 2, 64)),
          BlindRowsCase(2),
          bias_beside_relative,
          WithBias(BidirectionalCase(length)),
          WithBias(CausalCase(70, length), 0, 33),
          WithBias(ShuffledKeysCase(), -30, 61),
          WithBias(BlindRowsCase(2)),
          SharedBy(2, XlnetCase(40, 70, 1, 64)),
          SharedBy(3, XlnetCase(0, 61, 2, 32)),
          SharedBy(4, CausalCase(20, 60)),
          SharedBy(7, SequenceToSequenceCase(20, 50)),
          SharedBy(2, PackedCase()),
          SharedBy(2, BlindRowsCase(1)),
          SharedBy(2, WithBias(ShuffledKeysCase(), -30, 61))};
}

// "3_bidirectional", for GoogleTest's names of tests with a case for their parameter.
inline constexpr auto kScenarioName = [](const auto& info) {
  std::string name = std::to_string(info.index) + "_" + info.param.name;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char x) { return std::isalnum(x) == 0; }, '_');
  return name;
};

}  // namespace anyorder::kernels::testing
