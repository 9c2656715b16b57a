#include "tests/gpu/attention_bisection.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

#include "core/base/check.h"
#include "kernels/cuda/attention/attention_index.h"
#include "tests/gpu/attention_verdict.h"
#include "tests/kernels/attention_rounding.h"
#include "tests/kernels/attention_scenarios.h"

namespace anyorder::testing {
namespace {

using kernels::AttentionShape;
using kernels::testing::AttentionBounds;
using kernels::testing::AttentionCase;
using kernels::testing::AttentionData;

// Each has all features of those before it.
enum Level {
  kOneTile,
  kSeveralTiles,
  kMixedVisibility,
  kPosition,
  kBiases,
  kSegments,
  kMemory,
  kQueries,
  kLanes,
  kXlnet,
  kDropout,
  kBf16,  // of the general kernels, which compute in fp32 until here
};
constexpr std::array<const char*, kBf16 + 1> kLevelNames = {"one tile",
                                                            "+tiles and heads",
                                                            "+mixed visibility",
                                                            "+position",
                                                            "+biases",
                                                            "+segments",
                                                            "+memory",
                                                            "+queries",
                                                            "+lanes",
                                                            "+XLNet's orders and directions",
                                                            "+dropout",
                                                            "+bf16"};

struct AttentionSwitch {
  Level level;
  bool is_ring;
  bool is_backward;

  std::string name() const {
    return absl::StrCat(is_ring ? "ring " : "general ", is_backward ? "backward, " : "forward, ",
                        kLevelNames[static_cast<size_t>(level)]);
  }
};

// General kernels forward and backward, then the ring kernels, each from the simplest on.
std::vector<AttentionSwitch> AllSwitches() {
  std::vector<AttentionSwitch> all;
  for (const bool is_ring : {false, true}) {
    for (const bool is_backward : {false, true}) {
      for (int level = kOneTile; level <= (is_ring ? kDropout : kBf16); ++level)
        all.push_back({static_cast<Level>(level), is_ring, is_backward});
    }
  }
  return all;
}

constexpr int32_t kLength = 136;
constexpr int32_t kMemoryLength = 40;

// One stream, and the query stream of every sixth slot on its level.
AttentionCase PlainCase(Level level) {
  const int32_t length = level >= kSeveralTiles ? kLength : 64;
  AttentionCase c = kernels::testing::OneStreamCase(
      "", level >= kMemory ? kMemoryLength : 0, length,
      [level](int32_t i) { return level >= kMixedVisibility ? i : 0; });
  for (size_t lane = 0; lane < c.keys.size(); ++lane) {
    const size_t memory = c.keys[lane].pos.size() - static_cast<size_t>(length);
    for (int32_t i = 0; i < length; ++i) {
      const int32_t segment = level >= kSegments && i >= length / 3 ? 1 : 0;
      c.content[lane].seg[static_cast<size_t>(i)] = segment;
      c.keys[lane].seg[memory + static_cast<size_t>(i)] = segment;
      if (level >= kQueries && i % 6 == 1) c.query[lane].Add(i, i - 1, -1, 0, segment);
    }
  }
  for (auto* slots : {&c.content, &c.query, &c.keys}) slots->resize(level >= kLanes ? 2 : 1);
  c.Finish(level >= kSeveralTiles ? 2 : 1, kernels::cuda::kRingHeadDim, level >= kPosition ? 1 : 0);
  c.biases = level >= kBiases;
  c.segments = level >= kSegments;
  return c;
}

// The switch's problem; the ring kernels have all its rows if it is in bf16, but on kBf16's level
// none.
AttentionCase CaseOf(Level level) {
  if (level < kXlnet) return PlainCase(level);
  AttentionCase c =
      kernels::testing::XlnetCase(kMemoryLength, kLength, /*heads=*/2, kernels::cuda::kRingHeadDim);
  if (level >= kDropout) c.dropout_rate = 0.1;
  // Keys that are not in the order of their slots are the general kernels', in bf16 too.
  for (size_t lane = 0; level == kBf16 && lane < c.keys.size(); ++lane) c.keys[lane].pos[70] += 1;
  return c;
}

// What the rows of a tensor are.
enum class Rows { kQueries, kKeys, kDistances, kNone };

// Four warps share the rows of a tile.
void Place(int64_t lane, int64_t row, int64_t length, int64_t first_tile, int64_t tile_rows,
           CheckedElement* element) {
  element->lane = static_cast<int>(lane);
  element->tile = static_cast<int>(first_tile + row / tile_rows);
  element->row_of_tile = static_cast<int>(row % tile_rows);
  element->warp = static_cast<int>(element->row_of_tile * 4 / tile_rows);
  element->is_edge = row >= length / tile_rows * tile_rows;
}

// Where the kernels compute each element, and how rows and keys see each other.
class Places {
 public:
  template <typename T>
  Places(const AttentionData<T, float>& data, bool is_ring)
      : shape_(data.shape), is_ring_(is_ring), has_position_(!data.relative.empty()) {
    CountVisible(data.Inputs());
  }

  const AttentionShape& shape() const { return shape_; }

  // Sets what CheckedElement says of the place of row `row` of a tensor.
  void Locate(Rows rows, int64_t row, CheckedElement* element) const {
    if (rows == Rows::kQueries) return LocateQuery(row, element);
    if (rows == Rows::kNone) return;
    const int64_t length = rows == Rows::kKeys ? shape_.num_keys : shape_.num_distances;
    Place(row / length, row % length, length, 0, is_ring_ ? 64 : 32, element);
    if (rows != Rows::kKeys) return;
    const int64_t seen = seen_of_key_[static_cast<size_t>(row)];
    element->is_mixed = seen > 0 && seen < shape_.content_rows + shape_.query_rows;
  }

 private:
  void CountVisible(const kernels::AttentionInputs& in) {
    seen_by_row_.resize(static_cast<size_t>(shape_.num_rows()));
    seen_of_key_.resize(static_cast<size_t>(shape_.batch_size * shape_.num_keys));
    for (int64_t row = 0; row < shape_.num_rows(); ++row) {
      const int64_t first = shape_.LaneOfRow(row) * shape_.num_keys;
      for (int64_t key = first; key < first + shape_.num_keys; ++key) {
        if (!IsVisible(in.rows, row, in.keys, key, kernels::Band{})) continue;
        ++seen_by_row_[static_cast<size_t>(row)];
        ++seen_of_key_[static_cast<size_t>(key)];
      }
    }
  }

  void LocateQuery(int64_t row, CheckedElement* element) const {
    namespace cuda = kernels::cuda;
    const int64_t lane = shape_.LaneOfRow(row);
    const int64_t content = shape_.batch_size * shape_.content_rows;
    const int64_t content_tile = is_ring_ ? cuda::ContentTile::kRows : 32;
    const int64_t query_tile = !is_ring_       ? 32
                               : has_position_ ? cuda::TableTile::kRows
                                               : cuda::UnplacedTile::kRows;
    if (row < content) {
      Place(lane, row % shape_.content_rows, shape_.content_rows, 0, content_tile, element);
      // Of a content tile with a band each warp has every fourth row (RowOfSlot).
      if (is_ring_ && has_position_) element->warp = element->row_of_tile % cuda::kRingWarps;
    } else {
      const int64_t tiles = (shape_.content_rows + content_tile - 1) / content_tile;
      Place(lane, (row - content) % shape_.query_rows, shape_.query_rows, tiles, query_tile,
            element);
    }
    const int64_t seen = seen_by_row_[static_cast<size_t>(row)];
    element->is_mixed = seen > 0 && seen < shape_.num_keys;
  }

  AttentionShape shape_;
  bool is_ring_;
  bool has_position_;
  std::vector<int64_t> seen_by_row_, seen_of_key_;  // how many they see, and are seen by
};

// A result and what it should be.
struct CheckedTensor {
  const char* name;
  Rows rows;
  double most_rms = 0;  // of the differences
  bool columns_are_keys = false;
  std::vector<CheckedElement> elements;

  double Rms(double (*size_of)(const CheckedElement&)) const {
    double sum = 0;
    for (const CheckedElement& element : elements) sum += std::pow(size_of(element), 2);
    return std::sqrt(sum / static_cast<double>(elements.size()));
  }
  double DifferenceRms() const {
    return Rms(
        [](const CheckedElement& e) { return e.found == e.expected ? 0.0 : e.found - e.expected; });
  }
  // kAgrees, or what is wrong.
  std::string Verdict() const {
    const std::string pattern = PatternOf(elements);
    if (pattern != kAgrees || DifferenceRms() <= most_rms) return pattern;
    return absl::StrFormat(
        "precision: no element stands out, but all together are %.3g times as far off as they may",
        DifferenceRms() / most_rms);
  }
};

Rows RowsOf(absl::string_view name) {
  if (name == "out" || name == "lse" || name == "dq") return Rows::kQueries;
  if (name == "dk" || name == "dv") return Rows::kKeys;
  return name == "drelative" ? Rows::kDistances : Rows::kNone;
}

template <typename Element>
CheckedTensor Check(const char* name, Rows rows, const Places& places,
                    const std::vector<Element>& found, const std::vector<Element>& again,
                    const std::vector<double>& expected, const std::vector<double>& bound,
                    double most_rms) {
  const AttentionShape& shape = places.shape();
  const bool is_statistic =
      static_cast<int64_t>(found.size()) == shape.num_rows() * shape.num_heads;
  const int64_t columns = is_statistic && rows == Rows::kQueries ? 1 : shape.head_dim;
  CheckedTensor tensor{name, rows, most_rms, false, {}};
  for (size_t i = 0; i < found.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    CheckedElement element;
    places.Locate(rows, at / (columns * shape.num_heads), &element);
    element.head = static_cast<int>(at / columns % shape.num_heads);
    element.column = static_cast<int>(at % columns);
    element.expected = expected[i];
    element.found = kernels::testing::ToDouble(found[i]);
    element.bound = bound[i];
    element.differs = std::memcmp(&found[i], &again[i], sizeof found[i]) != 0;
    tensor.elements.push_back(element);
  }
  return tensor;
}

// Of a problem, what is right and how far from it a result may be: each element, and all of it (a
// root mean square).
struct Exact {
  AttentionData<double, double> results;
  AttentionBounds bounds;
  AttentionBounds rms;

  // fp32 has the bounds of the analysis, which are tight there; bf16 what rounding was measured to
  // do.
  template <typename T>
  Exact(const AttentionData<T, float>& data, bool backward)
      : results(kernels::testing::RunReference(kernels::testing::InDouble(data),
                                               backward || std::is_same_v<T, float>)) {
    if constexpr (std::is_same_v<T, float>) {
      bounds = kernels::testing::AttentionErrorAnalysis(results, DTypeOf<T>()).bounds();
      kernels::testing::VisitPairs(bounds, rms, [](const auto& bound, auto& mean) {
        double sum = 0;
        for (const double x : bound) sum += x * x;
        mean = {std::sqrt(sum / static_cast<double>(bound.size()))};
      });
    } else {
      kernels::testing::MeasuredRounding measured =
          kernels::testing::MeasureRounding(results, backward);
      bounds = std::move(measured.bounds);
      rms = std::move(measured.rms);
      // Many draws; but what is summed over all rows has one or two a head.
      kernels::testing::VisitPairs(rms, rms, [](auto& mean, auto&) { mean[0] *= 3; });
      for (auto* mean :
           {&rms.dcontent_bias, &rms.dposition_bias, &rms.dsegment_bias, &rms.dsegment_embedding})
        (*mean)[0] *= kernels::testing::kRoundingFactor / 3;
    }
  }
};

template <typename T>
class SwitchRun {
 public:
  SwitchRun(kernels::Backend& device, const AttentionSwitch& which)
      : device_(device),
        is_backward_(which.is_backward),
        data_(kernels::testing::MakeData<T, float>(CaseOf(which.level), 61)),
        places_(data_, which.is_ring) {}

  // The last one of forward is `out` with unit vectors for values.
  std::vector<CheckedTensor> Run() {
    std::vector<CheckedTensor> tensors = RunTwice();
    if (is_backward_) return tensors;
    kernels::testing::SetUnitValues(&data_);
    CheckedTensor& probabilities = tensors.emplace_back(RunTwice().front());
    probabilities.name = "probabilities";
    probabilities.columns_are_keys = true;
    return tensors;
  }

 private:
  std::vector<CheckedTensor> RunTwice() {
    const Exact exact(data_, is_backward_);
    const auto run = [&] {
      if (is_backward_) return RunBackward(exact.results);
      kernels::testing::RunOn(device_, &data_, /*backward=*/false);
    };
    run();
    const AttentionData<T, float> first = data_;
    run();
    std::vector<CheckedTensor> tensors;
    const auto check = [&](const char* name, const auto& found, const auto& again,
                           const auto& expected, const auto& bound, const auto& rms) {
      const bool is_gradient = *name == 'd';  // the others are forward's
      if (is_gradient != is_backward_) return;
      tensors.push_back(Check(name, RowsOf(name), places_, found, again, expected, bound, rms[0]));
    };
    kernels::testing::VisitResults(check, first, data_, exact.results, exact.bounds, exact.rms);
    return tensors;
  }
  void RunBackward(const AttentionData<double, double>& exact) {
    data_.Poison(device_.AttentionBackwardWorkspaceBytes(data_.shape, DTypeOf<T>()));
    const auto round = [](const std::vector<double>& from, auto* to) {
      using Element = std::decay_t<decltype((*to)[0])>;
      std::transform(from.begin(), from.end(), to->begin(),
                     [](double x) { return static_cast<Element>(static_cast<float>(x)); });
    };
    round(exact.out, &data_.out);
    round(exact.lse, &data_.lse);
    device_.AttentionBackward(data_.Backward(), {});
  }

  kernels::Backend& device_;
  const bool is_backward_;
  AttentionData<T, float> data_;
  Places places_;
};

std::string Number(double x) { return std::isfinite(x) ? absl::StrFormat("%.6g", x) : "null"; }

// How many times its bound an element is away; what is not a number is away infinitely.
double TimesBound(const CheckedElement& element) {
  if (element.found == element.expected) return 0;
  const double times = std::fabs(element.found - element.expected) / element.bound;
  return std::isnan(times) ? HUGE_VAL : times;
}

std::string WorstOf(const CheckedTensor& tensor) {
  const CheckedElement& worst =
      *std::max_element(tensor.elements.begin(), tensor.elements.end(),
                        [](const auto& a, const auto& b) { return TimesBound(a) < TimesBound(b); });
  const std::string key = tensor.columns_are_keys      ? absl::StrCat(worst.column)
                          : tensor.rows == Rows::kKeys ? absl::StrCat(worst.row_of_tile)
                                                       : "null";
  return absl::StrFormat(
      "{\"row_mod_8\": %d, \"warp\": %d, \"key_mod_64\": %s, \"tile\": %d, \"lane\": %d, \"head\": "
      "%d, \"column\": %d, \"expected\": %s, \"found\": %s, \"times_bound\": %s}",
      worst.row_of_tile % 8, worst.warp, key, worst.tile, worst.lane, worst.head, worst.column,
      Number(worst.expected), Number(worst.found), Number(TimesBound(worst)));
}

TensorReport ReportOf(const std::string& name, const CheckedTensor& tensor) {
  const double norm =
      tensor.Rms([](const CheckedElement& e) { return std::isinf(e.expected) ? 0.0 : e.expected; });
  TensorReport report{tensor.name, false, tensor.Verdict(), ""};
  report.passed = report.pattern == kAgrees;
  report.line = absl::StrFormat(
      "{\"bisect\": \"%s\", \"tensor\": \"%s\", \"relative_l2\": %s, \"bound\": %s, "
      "\"passed\": %s, \"worst\": %s, \"pattern\": \"%s\"}",
      name, tensor.name, Number(tensor.DifferenceRms() / norm), Number(tensor.most_rms / norm),
      report.passed ? "true" : "false", WorstOf(tensor), report.pattern);
  return report;
}

std::vector<CheckedTensor> Run(kernels::Backend& device, const AttentionSwitch& which) {
  if (which.is_ring || which.level == kBf16) return SwitchRun<BFloat16>(device, which).Run();
  return SwitchRun<float>(device, which).Run();
}

}  // namespace

std::vector<std::string> BisectionSwitches() {
  std::vector<std::string> names;
  for (const AttentionSwitch& each : AllSwitches()) names.push_back(each.name());
  return names;
}

std::vector<TensorReport> RunSwitch(kernels::Backend& device, const std::string& name) {
  std::vector<TensorReport> reports;
  for (const AttentionSwitch& which : AllSwitches()) {
    if (which.name() != name) continue;
    for (const CheckedTensor& tensor : Run(device, which)) {
      if (!tensor.elements.empty()) reports.push_back(ReportOf(name, tensor));
    }
  }
  ANYORDER_CHECK(!reports.empty()) << "there is no switch '" << name << "'";
  return reports;
}

bool BisectAttention(kernels::Backend& device, int begin, int end, std::ostream& out) {
  const std::vector<std::string> names = BisectionSwitches();
  std::string first_failure;
  for (int i = begin; i < end; ++i) {
    const std::string& name = names[static_cast<size_t>(i)];
    out << absl::StrFormat("{\"bisecting\": \"%s\", \"number\": %d}", name, i) << std::endl;
    for (const TensorReport& report : RunSwitch(device, name)) {
      out << report.line << std::endl;
      if (first_failure.empty() && !report.passed)
        first_failure =
            absl::StrCat("first failing switch: ", name, ": ", report.tensor, ": ", report.pattern);
    }
  }
  out << (first_failure.empty() ? "attention agrees with the reference in every switch"
                                : first_failure)
      << std::endl;
  return first_failure.empty();
}

}  // namespace anyorder::testing
