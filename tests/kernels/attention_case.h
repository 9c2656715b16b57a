// Attention problems for tests: a shape, the visibility integers of one objective, random tensors,
// and the argument structs over them for any element type.

#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/philox.h"
#include "kernels/attention.h"

namespace anyorder::kernels::testing {

// Slots of rows or keys, as kernels/visibility.h names them.
struct Slots {
  std::vector<int32_t> pos, order, grp, doc, seg;  // order: lim of rows, key of keys
  std::vector<uint8_t> glob;

  void Add(int32_t p, int32_t o, int32_t g = -1, int32_t d = 0, int32_t s = 0, uint8_t global = 0) {
    pos.push_back(p);
    order.push_back(o);
    grp.push_back(g);
    doc.push_back(d);
    seg.push_back(s);
    glob.push_back(global);
  }
  void AddSlot(const Slots& other, size_t i) {
    Add(other.pos[i], other.order[i], other.grp[i], other.doc[i], other.seg[i], other.glob[i]);
  }
  void Append(const Slots& other) {
    for (size_t i = 0; i < other.pos.size(); ++i) AddSlot(other, i);
  }
  // RowVisibility or KeyVisibility of these slots, each array where place(array) says that it is.
  template <typename Visibility, typename Place>
  Visibility As(Place&& place) const {
    return {place(pos), place(order), place(grp), place(doc), place(seg), place(glob)};
  }
  // In this object, which must live as long.
  template <typename Visibility>
  Visibility As() const {
    return As<Visibility>([](const auto& values) { return values.data(); });
  }
};

// What a case and the problems made of it share.
struct AttentionFrame {
  AttentionShape shape;
  int64_t min_distance = 0;
  int64_t min_bias_distance = 0;
  std::vector<Band> bands;  // empty: null
  std::vector<int32_t> table_of_lane;
};

// What the shape does not say. Content rows of all lanes come before query rows, as in the
// contract.
struct AttentionCase : AttentionFrame {
  std::string name;
  std::vector<Slots> content, query, keys;  // one for each lane
  bool biases = true;
  bool segments = true;
  double dropout_rate = 0.0;

  friend std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
    return out << c.name;
  }

  void AddLane(const Slots& lane_content, const Slots& lane_query, const Slots& lane_keys) {
    content.push_back(lane_content);
    query.push_back(lane_query);
    keys.push_back(lane_keys);
  }

  // Sets the shape from the slots, and a table that holds every distance of any two slots (or
  // none).
  void Finish(int64_t heads, int64_t head_dim, int64_t tables) {
    shape.batch_size = static_cast<int64_t>(keys.size());
    shape.content_rows = static_cast<int64_t>(content[0].pos.size());
    shape.query_rows = static_cast<int64_t>(query[0].pos.size());
    shape.num_keys = static_cast<int64_t>(keys[0].pos.size());
    shape.num_heads = heads;
    shape.head_dim = head_dim;
    shape.num_tables = tables;
    for (int64_t lane = 0; lane < shape.batch_size; ++lane)
      table_of_lane.push_back(static_cast<int32_t>(tables > 0 ? (lane + 1) % tables : 0));
    int64_t low = std::numeric_limits<int64_t>::max();
    int64_t high = std::numeric_limits<int64_t>::min();
    for (size_t lane = 0; lane < keys.size(); ++lane) {
      for (const int32_t j : keys[lane].pos) {
        for (const std::vector<Slots>* rows : {&content, &query}) {
          for (const int32_t i : (*rows)[lane].pos) {
            low = std::min(low, int64_t{i} - j);
            high = std::max(high, int64_t{i} - j);
          }
        }
      }
    }
    if (tables == 0 || low > high) {
      shape.num_tables = 0;
      return;
    }
    min_distance = low;
    shape.num_distances = high - low + 1;
  }

  // After Finish: a bias for each of `count` distances from `low` on, with as many tables as there
  // are relative ones, else with one for every two lanes.
  void AddDistanceBias(int64_t low, int64_t count) {
    min_bias_distance = low;
    shape.num_bias_distances = count;
    if (shape.num_tables > 0) return;
    shape.num_tables = 2;
    for (size_t lane = 0; lane < table_of_lane.size(); ++lane)
      table_of_lane[lane] = static_cast<int32_t>((lane + 1) % 2);
  }
};

// Calls visit(name, vector of each of `all`) for each result of attention; they have members of the
// same names.
template <typename Visitor, typename... Results>
void VisitResults(const Visitor& visit, Results&... all) {
  visit("out", all.out...);
  visit("lse", all.lse...);
  visit("dq", all.dq...);
  visit("dk", all.dk...);
  visit("dv", all.dv...);
  visit("drelative", all.drelative...);
  visit("dcontent_bias", all.dcontent_bias...);
  visit("dposition_bias", all.dposition_bias...);
  visit("dsegment_bias", all.dsegment_bias...);
  visit("dsegment_embedding", all.dsegment_embedding...);
  visit("ddistance_bias", all.ddistance_bias...);
}
template <typename A, typename B, typename Visitor>
void VisitPairs(A& a, B& b, const Visitor& visit) {
  VisitResults([&visit](const char*, auto& x, auto& y) { visit(x, y); }, a, b);
}
// The same of what attention reads.
template <typename Visitor, typename... Data>
void VisitOperands(const Visitor& visit, Data&... all) {
  visit(all.q...);
  visit(all.k...);
  visit(all.v...);
  visit(all.dout...);
  visit(all.relative...);
  visit(all.content_bias...);
  visit(all.position_bias...);
  visit(all.segment_bias...);
  visit(all.segment_embedding...);
  visit(all.distance_bias...);
}

// What is no tensor of a case.
struct AttentionSetting : AttentionFrame {
  float scale = 0;
  Slots rows, keys;
  std::vector<int32_t> row_ids;
  Dropout dropout;
};

// Tensors of a case in element type T, statistics and parameter gradients in G.
template <typename T, typename G>
struct AttentionData : AttentionSetting {
  std::vector<T> q, k, v, relative, content_bias, position_bias, segment_bias, segment_embedding;
  std::vector<T> distance_bias;
  std::vector<T> out, dout, dq, dk, dv, drelative;
  std::vector<G> lse, dcontent_bias, dposition_bias, dsegment_bias, dsegment_embedding;
  std::vector<G> ddistance_bias;
  std::vector<uint8_t> workspace;

  // Null if there is nothing in it.
  template <typename Element>
  static ConstTensorView View(const std::vector<Element>& x) {
    return ConstTensorView(x.empty() ? nullptr : x.data(), {static_cast<int64_t>(x.size())});
  }
  template <typename Element>
  static TensorView View(std::vector<Element>& x) {
    return TensorView(x.empty() ? nullptr : x.data(), {static_cast<int64_t>(x.size())});
  }

  AttentionInputs Inputs() const {
    return {.shape = shape,
            .q = View(q),
            .k = View(k),
            .v = View(v),
            .relative = View(relative),
            .min_distance = min_distance,
            .table_of_lane = table_of_lane.data(),
            .content_bias = View(content_bias),
            .position_bias = View(position_bias),
            .segment_bias = View(segment_bias),
            .segment_embedding = View(segment_embedding),
            .distance_bias = View(distance_bias),
            .min_bias_distance = min_bias_distance,
            .scale = scale,
            .rows = rows.As<RowVisibility>(),
            .keys = keys.As<KeyVisibility>(),
            .bands = bands.empty() ? nullptr : bands.data(),
            .dropout = dropout,
            .row_ids = row_ids.data()};
  }
  AttentionForwardArgs Forward() { return {Inputs(), View(out), View(lse)}; }
  AttentionBackwardArgs Backward() {
    AttentionBackwardArgs args = {.in = Inputs(), .dout = View(dout)};
    VisitPairs(*this, args, [](auto& x, auto& view) { view = View(x); });
    args.workspace = View(workspace);
    return args;
  }

  std::string ResultBytes() const {
    std::string bytes;
    const auto append = [&bytes](const char*, const auto& x) {
      bytes.append(reinterpret_cast<const char*>(x.data()), x.size() * sizeof(x[0]));
    };
    VisitResults(append, *this);
    return bytes;
  }

  // Outputs and workspace start as NaN: whatever is not written shows.
  void Poison(int64_t workspace_bytes) {
    const auto poison = [](const char*, auto& x) {
      using Element = std::decay_t<decltype(x[0])>;
      x.assign(x.size(), static_cast<Element>(std::numeric_limits<float>::quiet_NaN()));
    };
    VisitResults(poison, *this);
    workspace.assign(workspace_bytes, 0xff);
  }
};

template <typename T, typename G>
void SizeOutputs(AttentionData<T, G>* data) {
  data->out.resize(data->q.size());
  data->dq.resize(data->q.size());
  data->dk.resize(data->k.size());
  data->dv.resize(data->v.size());
  data->drelative.resize(data->relative.size());
  data->lse.resize(data->shape.num_rows() * data->shape.num_heads);
  data->dcontent_bias.resize(data->content_bias.size());
  data->dposition_bias.resize(data->position_bias.size());
  data->dsegment_bias.resize(data->segment_bias.size());
  data->dsegment_embedding.resize(data->segment_embedding.size());
  data->ddistance_bias.resize(data->distance_bias.size());
}

// Normal tensors, representable in T.
template <typename T, typename G>
AttentionData<T, G> MakeData(const AttentionCase& c, uint64_t seed) {
  AttentionData<T, G> data;
  static_cast<AttentionFrame&>(data) = c;
  data.scale = 1.0f / std::sqrt(static_cast<float>(c.shape.head_dim));
  for (const Slots& lane : c.content) data.rows.Append(lane);
  for (const Slots& lane : c.query) data.rows.Append(lane);
  for (const Slots& lane : c.keys) data.keys.Append(lane);
  RandomStream random(seed, RandomPurpose::kInit, 0, 0);
  const auto fill = [&](std::vector<T>* x, int64_t count) {
    x->resize(static_cast<size_t>(count));
    for (T& value : *x) value = static_cast<T>(static_cast<float>(random.Normal()));
  };
  const int64_t width = c.shape.model_dim();
  fill(&data.q, c.shape.num_rows() * width);
  fill(&data.k, c.shape.batch_size * c.shape.num_keys * c.shape.keys_dim());
  fill(&data.v, c.shape.batch_size * c.shape.num_keys * c.shape.keys_dim());
  fill(&data.dout, c.shape.num_rows() * width);
  fill(&data.relative, c.shape.num_tables * c.shape.num_distances * width);
  if (c.biases) {
    fill(&data.content_bias, width);
    if (!data.relative.empty()) fill(&data.position_bias, width);
  }
  if (c.segments) {
    fill(&data.segment_embedding, 2 * width);
    if (c.biases) fill(&data.segment_bias, width);
  }
  fill(&data.distance_bias, c.shape.num_tables * c.shape.num_bias_distances * c.shape.num_heads);
  // Logical row ids are nobody's index.
  for (int64_t i = 0; i < c.shape.num_rows(); ++i)
    data.row_ids.push_back(static_cast<int32_t>(7 + 3 * i));
  if (c.dropout_rate > 0) data.dropout = MakeDropout(seed, 5, 3, c.dropout_rate);
  SizeOutputs(&data);
  return data;
}

// The values of key j are 1 in column j modulo head_dim of every head, else 0: outputs are weights.
template <typename T, typename G>
void SetUnitValues(AttentionData<T, G>* data) {
  const AttentionShape& s = data->shape;
  for (int64_t i = 0; i < static_cast<int64_t>(data->v.size()); ++i) {
    const bool is_own = i / s.keys_dim() % s.num_keys % s.head_dim == i % s.head_dim;
    data->v[i] = static_cast<T>(is_own ? 1.0f : 0.0f);
  }
}

// NaN in whatever may not be read (kernels/visibility.h): keys and values of pads, rows that see
// nothing.
template <typename T, typename G>
void SpoilUnread(AttentionData<T, G>* data) {
  const AttentionShape& s = data->shape;
  const AttentionInputs in = data->Inputs();
  const auto spoil = [](int64_t slot, int64_t width, std::vector<T>* x) {
    for (int64_t i = slot * width; i < (slot + 1) * width; ++i)
      (*x)[i] = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
  };
  const auto sees = [&](int64_t row) {
    for (int64_t i = 0; i < s.num_heads * s.num_keys; ++i) {
      const Band band = in.bands == nullptr ? Band{} : in.bands[i / s.num_keys];
      const int64_t key = s.LaneOfRow(row) * s.num_keys + i % s.num_keys;
      if (IsVisible(in.rows, row, in.keys, key, band)) return true;
    }
    return false;
  };
  for (int64_t key = 0; key < s.batch_size * s.num_keys; ++key) {
    if (in.keys.doc[key] != kDocPad) continue;
    spoil(key, s.keys_dim(), &data->k);
    spoil(key, s.keys_dim(), &data->v);
  }
  for (int64_t row = 0; row < s.num_rows(); ++row) {
    if (sees(row)) continue;
    spoil(row, s.model_dim(), &data->q);
    spoil(row, s.model_dim(), &data->dout);
  }
}

template <typename T>
double ToDouble(T x) {
  static_assert(!std::is_same_v<T, double>);
  return static_cast<float>(x);
}
template <typename T>
std::vector<double> InDouble(const std::vector<T>& values) {
  std::vector<double> exact;
  for (const T& value : values) exact.push_back(ToDouble(value));
  return exact;
}

// The same problem in double.
template <typename T, typename G>
AttentionData<double, double> InDouble(const AttentionData<T, G>& data) {
  AttentionData<double, double> exact;
  static_cast<AttentionSetting&>(exact) = data;
  VisitOperands([](const auto& from, auto& to) { to = InDouble(from); }, data, exact);
  SizeOutputs(&exact);
  return exact;
}

}  // namespace anyorder::kernels::testing
