#include "data/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"

#include "core/base/check.h"
#include "core/base/counted.h"
#include "core/base/digest.h"
#include "core/base/philox.h"
#include "core/base/status.h"
#include "core/objective/lane_frame.h"
#include "core/objective/masked_lm.h"
#include "data/sampling/lane_streams.h"
#include "data/sampling/sample_draws.h"

namespace anyorder::data {

namespace {

// Tokens a stream must have for one step. kContiguous needs the token after the last one, too.
int64_t StreamNeed(const SamplingConfig& config, SampleKind kind) {
  return config.seq_len + (kind == SampleKind::kContiguous ? 1 : 0);
}

// Fills a sample's slots one after the other.
class SlotWriter {
 public:
  SlotWriter(const LaneText& lane, TextSample& sample) : lane_(lane), sample_(sample) {}

  absl::Status AddText(int64_t from, int64_t to, int32_t segment) {
    RETURN_IF_ERROR(lane_.ReadTokens(from, to, &sample_.tokens[slot_]));
    RETURN_IF_ERROR(lane_.ReadWordStarts(from, to, &sample_.word_starts[slot_]));
    std::fill_n(sample_.segment.begin() + slot_, to - from, segment);
    slot_ += to - from;
    return absl::OkStatus();
  }
  void AddFunctional(int32_t id, int32_t segment) {
    sample_.tokens[slot_] = id;
    sample_.segment[slot_] = segment;
    sample_.is_functional[slot_] = 1;
    sample_.word_starts[slot_] = 1;  // their pieces begin with '<'
    ++slot_;
  }
  // Functional, too: no target.
  void AddPadding(int32_t id) {
    sample_.padding = static_cast<int64_t>(sample_.tokens.size()) - slot_;
    while (slot_ < static_cast<int64_t>(sample_.tokens.size())) AddFunctional(id, 0);
  }

 private:
  const LaneText& lane_;
  TextSample& sample_;
  int64_t slot_ = 0;
};

class LaneSampler : public Sampler {
 public:
  // An epoch is that of the first stream.
  LaneSampler(const TextSource& text, const SamplingConfig& config, SampleKind kind, uint64_t seed,
              const std::vector<LaneStream>& streams)
      : vocabulary_(text.vocabulary()),
        config_(Effective(config, kind)),
        kind_(kind),
        seed_(seed),
        span_lengths_(config.max_span),
        advance_(kind == SampleKind::kContiguous ? config.seq_len : config.reuse_len),
        steps_per_epoch_((streams[0].length - StreamNeed(config, kind)) / advance_ + 1),
        tokens_per_lane_((steps_per_epoch_ - 1) * advance_ + StreamNeed(config, kind)) {
    for (const LaneStream& stream : streams) lanes_.emplace_back(text, stream);
  }

  bool IsBackward(int64_t lane) const override { return lanes_[lane].backward(); }
  int64_t steps_per_epoch() const override { return steps_per_epoch_; }
  int64_t tokens_per_lane() const override { return tokens_per_lane_; }

  absl::StatusOr<TextSample> Sample(int64_t lane, int64_t step) const override {
    ANYORDER_CHECK(lane >= 0 && lane < static_cast<int64_t>(lanes_.size()) && step >= 0)
        << "lane " << lane << " of " << lanes_.size() << ", step " << step;
    TextSample sample;
    sample.lane = lane;
    sample.num_lanes = std::ssize(lanes_);
    sample.step = step;
    sample.backward = lanes_[lane].backward();
    sample.seed = seed_;
    sample.vocabulary = vocabulary_;
    sample.tokens.resize(config_.seq_len);
    sample.segment.resize(config_.seq_len);
    const int64_t begin = step % steps_per_epoch_ * advance_;
    RETURN_IF_ERROR(kind_ == SampleKind::kContiguous ? FillContiguous(lanes_[lane], begin, sample)
                                                     : FillPairs(lanes_[lane], begin, sample));
    return sample;
  }

 private:
  // A denoising target is never SEP or CLS.
  static SamplingConfig Effective(SamplingConfig config, SampleKind kind) {
    if (kind != SampleKind::kPairs) config.functional_targets = false;
    return config;
  }

  absl::Status FillContiguous(const LaneText& lane, int64_t begin, TextSample& sample) const {
    sample.tokens.resize(config_.seq_len + 1);
    RETURN_IF_ERROR(lane.ReadTokens(begin, begin + config_.seq_len + 1, sample.tokens.data()));
    sample.next_tokens.assign(sample.tokens.begin() + 1, sample.tokens.end());
    sample.tokens.pop_back();
    sample.word_starts.resize(config_.seq_len);
    RETURN_IF_ERROR(lane.ReadWordStarts(begin, begin + config_.seq_len, sample.word_starts.data()));
    return absl::OkStatus();
  }

  // The text; then masks and orders of its two halves, or masks and what is read in their place.
  absl::Status FillPairs(const LaneText& lane, int64_t begin, TextSample& sample) const {
    sample.is_functional.resize(config_.seq_len);
    sample.word_starts.resize(config_.seq_len);
    RETURN_IF_ERROR(FillSegments(lane, begin, sample));
    DrawTargets(sample);
    if (kind_ != SampleKind::kPairs) {
      CorruptTargets(sample);
    } else {
      DrawOrders(sample);
    }
    return absl::OkStatus();
  }

  // [reuse][A][SEP][B][SEP][CLS], the reuse part being A's where there is no such part, or
  // [A][SEP][CLS]; then padding.
  absl::Status FillSegments(const LaneText& lane, int64_t begin, TextSample& sample) const {
    RandomStream extents(seed_, RandomPurpose::kExtent, sample.step, sample.lane);
    const TextExtent extent = DrawExtent(config_, kind_, extents);
    sample.mode = extent.mode;
    SlotWriter slots(lane, sample);
    const bool one_segment =
        extent.mode == TextMode::kLeftToRight || extent.mode == TextMode::kRightToLeft;
    if (one_segment) {
      // Its one SEP less makes room for a token.
      RETURN_IF_ERROR(slots.AddText(begin, begin + extent.tokens + 1, 0));
    } else {
      RETURN_IF_ERROR(AddPair(lane, begin, extent, slots, sample));
    }
    slots.AddFunctional(vocabulary_.separator, one_segment ? 0 : 1);
    slots.AddFunctional(vocabulary_.classifier, 2);
    slots.AddPadding(vocabulary_.separator);
    return absl::OkStatus();
  }

  // A, SEP and B.
  absl::Status AddPair(const LaneText& lane, int64_t begin, const TextExtent& extent,
                       SlotWriter& slots, TextSample& sample) const {
    RandomStream random(seed_, RandomPurpose::kPairs, sample.step, sample.lane);
    const bool has_reuse_part = kind_ != SampleKind::kModePairs &&
                                config_.pairs == PairStyle::kXlnet &&
                                extent.tokens == config_.seq_len - kNumFunctional;
    const int64_t reuse = has_reuse_part ? config_.reuse_len : 0;
    const int64_t total = extent.tokens - reuse;
    ASSIGN_OR_RETURN(const SegmentPair pair,
                     extent.mode == TextMode::kSeq2seq
                         ? DrawDividedText(lane, begin, total, random)
                         : DrawSegmentPair(lane, begin + reuse, total, random, config_.pairs));
    sample.b_follows_a = pair.b_follows_a;
    if (reuse > 0) RETURN_IF_ERROR(slots.AddText(begin, begin + reuse, 0));
    RETURN_IF_ERROR(slots.AddText(pair.a_begin, pair.a_end, 0));
    slots.AddFunctional(vocabulary_.separator, 0);
    return slots.AddText(pair.b_begin, pair.b_end, 1);
  }

  // In reading order of the text, so that spans and words begin at word starts in backward lanes,
  // too.
  void DrawTargets(TextSample& sample) const {
    RandomStream random(seed_, RandomPurpose::kSpans, sample.step, sample.lane);
    const auto turn = [&](std::vector<uint8_t>& slots) {
      if (sample.backward) std::reverse(slots.begin(), slots.end());
    };
    std::vector<uint8_t> word_starts = sample.word_starts;
    std::vector<uint8_t> functional = sample.is_functional;
    turn(word_starts);
    turn(functional);
    // BERT's choice is from the sequence as a whole.
    const int64_t goal = std::min<int64_t>(config_.MaskedTargets(config_.seq_len - sample.padding),
                                           std::count(functional.begin(), functional.end(), 0));
    if (kind_ == SampleKind::kPairs || config_.spans == SpanKind::kSubword) {
      sample.is_masked = DrawHalves({word_starts, functional}, sample.backward, random);
    } else if (config_.spans == SpanKind::kNgram) {
      sample.is_masked = DrawNgramMask(functional, config_, goal, random);
    } else {
      sample.is_masked = DrawUnitMask(word_starts, functional, config_.spans, goal, random);
    }
    turn(sample.is_masked);
  }

  // Spans of each half, that first which the lane reads first. `text` is both.
  std::vector<uint8_t> DrawHalves(const HalfText& text, bool backward, RandomStream& random) const {
    const auto half_len = static_cast<size_t>(config_.reuse_len);
    const int64_t targets = config_.NumTargets(kind_);
    std::vector<uint8_t> masks(2 * half_len);
    for (const bool is_second : {false, true}) {
      const size_t begin = is_second == backward ? 0 : half_len;
      const HalfText half = {.word_starts = text.word_starts.subspan(begin, half_len),
                             .functional = text.functional.subspan(begin, half_len)};
      const int64_t goal = is_second ? targets / 2 : targets - targets / 2;
      const auto mask = DrawSpanMask(half, goal, config_, span_lengths_, random);
      std::copy(mask.begin(), mask.end(), masks.begin() + static_cast<ptrdiff_t>(begin));
    }
    return masks;
  }

  void CorruptTargets(TextSample& sample) const {
    ANYORDER_CHECK(vocabulary_.mask >= 0 && vocabulary_.mask < vocabulary_.size)
        << "mask " << vocabulary_.mask << " of " << vocabulary_.size;
    RandomStream random(seed_, RandomPurpose::kCorruption, sample.step, sample.lane);
    sample.input_tokens = sample.tokens;
    for (size_t i = 0; i < sample.tokens.size(); ++i)
      if (sample.is_masked[i] != 0)
        sample.input_tokens[i] = Corrupted(sample.tokens[i], config_, vocabulary_, random);
  }

  void DrawOrders(TextSample& sample) const {
    RandomStream random(seed_, RandomPurpose::kPermutation, sample.step, sample.lane);
    const int64_t half_len = config_.reuse_len;
    sample.order.resize(config_.seq_len);
    for (const int64_t half : {0, 1}) {
      const std::vector<int32_t> permutation = DrawOrder(config_.perm_size, random);
      FillOrder(permutation, absl::MakeSpan(&sample.order[half * half_len], half_len));
    }
  }

  const VocabularyIds vocabulary_;
  const SamplingConfig config_;
  const SampleKind kind_;
  const uint64_t seed_;
  const SpanLengths span_lengths_;
  const int64_t advance_;
  const int64_t steps_per_epoch_;
  const int64_t tokens_per_lane_;
  std::vector<LaneText> lanes_;
};

// The examples of generation of a dataset as examples of a sequence each. One that fits nowhere is
// alone.
class PackedExamples : public ExampleSource {
 public:
  explicit PackedExamples(const ExampleSource& examples) : examples_(examples) {}

  absl::Status Pack(int64_t seq_len) {
    std::multimap<int64_t, int32_t, std::greater<>> examples;  // by their slots
    for (int64_t i = 0; i < examples_.num_examples(); ++i) {
      ASSIGN_OR_RETURN(const ExampleOutline outline, examples_.Outline(i));
      const std::vector<int64_t>& lengths = outline.lengths;
      const int64_t slots = std::accumulate(lengths.begin(), lengths.end(), int64_t{1});
      examples.emplace(std::min(slots, seq_len), static_cast<int32_t>(i));
    }
    std::multimap<int64_t, size_t> packs;  // by the slots that they have left
    for (const auto& [slots, example] : examples) {
      if (packs.lower_bound(slots) == packs.end()) {
        packs.emplace(seq_len, packs_.size());
        packs_.emplace_back();
      }
      auto fullest = packs.extract(packs.lower_bound(slots));
      packs_[fullest.mapped()].push_back(example);
      fullest.key() -= slots;
      packs.insert(std::move(fullest));
    }
    return absl::OkStatus();
  }

  ExampleTask task() const override { return examples_.task(); }
  int64_t num_examples() const override { return std::ssize(packs_); }
  int64_t num_classes() const override { return examples_.num_classes(); }
  VocabularyIds vocabulary() const override { return examples_.vocabulary(); }
  absl::StatusOr<Example> ReadExample(int64_t pack) const override {
    Example all;
    for (const int32_t example : packs_[static_cast<size_t>(pack)]) {
      ASSIGN_OR_RETURN(Example one, examples_.ReadExample(example));
      std::move(one.parts.begin(), one.parts.end(), std::back_inserter(all.parts));
      all.packed_ends.push_back(std::ssize(all.parts));
    }
    return all;
  }

 private:
  const ExampleSource& examples_;
  std::vector<std::vector<int32_t>> packs_;
};

absl::Status TooShort(const TextSource& text, const SamplingConfig& config, SampleKind kind,
                      int64_t num_lanes) {
  const int64_t most = Sampler::MostLanes(text, config, kind, num_lanes);
  return FailedPrecondition(
      "dataset of ", text.num_tokens(), " tokens is too short for ", Counted(num_lanes, "lane"),
      " of ", StreamNeed(config, kind), " tokens each; ",
      most == 0 ? "not one fits"
                : absl::StrCat("at most ", most, most == 1 ? " lane fits" : " lanes fit"),
      ": prepare more text, or make sampling.seq_len smaller");
}

// With its length before it, so that no two lists of arrays give the same bytes.
template <typename T>
void Update(StreamingDigest& digest, const std::vector<T>& values) {
  const uint64_t count = values.size();
  digest.Update({reinterpret_cast<const char*>(&count), sizeof count});
  digest.Update({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

}  // namespace

int64_t Sampler::MostLanes(const TextSource& text, const SamplingConfig& config, SampleKind kind,
                           int64_t num_lanes) {
  const int64_t need = StreamNeed(config, kind);
  const int64_t lanes_per_stream = config.bidirectional ? 2 : 1;
  int64_t fitting = std::min(num_lanes, text.num_tokens() / need * lanes_per_stream);
  for (; fitting > 0; fitting -= lanes_per_stream) {
    const auto lanes =
        PlaceLanes(text.num_tokens(), fitting, config.bidirectional, config.lane_cells);
    if (lanes[0].length >= need) break;
  }
  return std::max<int64_t>(0, fitting);
}

absl::StatusOr<std::unique_ptr<Sampler>> Sampler::Create(const TextSource& text,
                                                         const SamplingConfig& config,
                                                         SampleKind kind, uint64_t seed,
                                                         int64_t num_lanes, WindowUse windows) {
  RETURN_IF_ERROR(config.Validate(kind).ToStatus());
  if (kind == SampleKind::kExamples && text.examples() == nullptr) {
    return absl::InvalidArgumentError(
        "the dataset is plain text, but the objective learns from labelled examples; make one "
        "with `anyorder prep --examples`");
  }
  if (config.hide_documents && text.vocabulary().end_of_document < 0) {
    return absl::InvalidArgumentError(
        "[sampling] hide_documents is true, but the dataset has no <eod> to tell where documents "
        "end; leave it out, or prepare the text with document ends");
  }
  if (num_lanes < 1 || (config.bidirectional && num_lanes % 2 != 0)) {
    return InvalidArgument(
        "number of lanes ", num_lanes, " must be positive",
        config.bidirectional ? " and even, because sampling.bidirectional=true" : "");
  }
  if (kind == SampleKind::kExamples) {
    const ExampleSource& examples = *text.examples();
    std::unique_ptr<const ExampleSource> made;
    if (examples.task() == ExampleTask::kSpans) {
      ASSIGN_OR_RETURN(made, PassageWindows::Create(examples, config, windows));
    } else if (config.pack_examples) {
      auto packed = std::make_unique<PackedExamples>(examples);
      RETURN_IF_ERROR(packed->Pack(config.seq_len));
      made = std::move(packed);
    }
    const bool has_step_lengths = made == nullptr && examples.task() == ExampleTask::kGeneration &&
                                  config.any_order.is_padded_by_step();
    const ExampleSource& read = made == nullptr ? examples : *made;
    return std::make_unique<ExampleSampler>(read, seed, num_lanes, std::move(made),
                                            has_step_lengths);
  }
  // More lanes than tokens cannot be placed.
  if (num_lanes > 2 * text.num_tokens()) return TooShort(text, config, kind, num_lanes);
  const std::vector<LaneStream> streams =
      PlaceLanes(text.num_tokens(), num_lanes, config.bidirectional, config.lane_cells);
  if (streams[0].length < StreamNeed(config, kind)) return TooShort(text, config, kind, num_lanes);
  return std::make_unique<LaneSampler>(text, config, kind, seed, streams);
}

absl::StatusOr<std::unique_ptr<Sampler>> Sampler::CreateWhole(const TextSource& text,
                                                              const SamplingConfig& config,
                                                              SampleKind kind, uint64_t seed) {
  const bool is_text = kind != SampleKind::kExamples;
  const int64_t lanes = is_text && config.bidirectional ? 2 : 1;
  SamplingConfig whole = config;
  if (!is_text) whole.bidirectional = false;
  ASSIGN_OR_RETURN(std::unique_ptr<Sampler> sampler,
                   Create(text, whole, kind, seed, lanes, WindowUse::kAll));
  if (!is_text) return sampler;
  const int64_t need = StreamNeed(config, kind);
  const LaneStream all{0, text.num_tokens(), false}, last{text.num_tokens() - need, need, false};
  const LaneStream all_back{0, text.num_tokens(), true}, last_back{0, need, true};
  const std::vector<LaneStream> streams =
      lanes == 1 ? std::vector{all, last} : std::vector{all, all_back, last, last_back};
  return std::make_unique<LaneSampler>(text, config, kind, seed, streams);
}

ExampleSampler::ExampleSampler(const ExampleSource& examples, uint64_t seed, int64_t num_lanes,
                               std::unique_ptr<const ExampleSource> made, bool has_step_lengths)
    : made_(std::move(made)),
      examples_(examples),
      seed_(seed),
      num_lanes_(num_lanes),
      num_examples_(examples.num_examples()),
      has_step_lengths_(has_step_lengths) {
  ANYORDER_CHECK(num_lanes >= 1) << num_lanes;
  ANYORDER_CHECK(num_examples_ >= 1 && num_examples_ < int64_t{1} << 31) << num_examples_;
}

int64_t ExampleSampler::ExampleAt(int64_t turn) const {
  const int64_t epoch = turn / num_examples_;
  const MutexLock lock(&orders_mutex_);
  std::vector<int32_t>& order = orders_[epoch];
  if (order.empty()) {
    RandomStream random(seed_, RandomPurpose::kExamples, static_cast<uint64_t>(epoch), 0);
    order = DrawOrder(num_examples_, random);
  }
  const int64_t example = order[static_cast<size_t>(turn % num_examples_)];
  while (orders_.size() > 2)
    orders_.erase(orders_.begin()->first == epoch ? std::prev(orders_.end()) : orders_.begin());
  return example;
}

absl::StatusOr<std::shared_ptr<const std::vector<PartLengths>>> ExampleSampler::StepLengths(
    int64_t step) const {
  const MutexLock lock(&lengths_mutex_);
  if (step == lengths_step_) return lengths_;
  std::vector<PartLengths> lengths;
  for (int64_t lane = 0; lane < num_lanes_; ++lane) {
    ASSIGN_OR_RETURN(const ExampleOutline outline,
                     examples_.Outline(ExampleAt(step * num_lanes_ + lane)));
    lengths.push_back({outline.lengths[0], outline.lengths[1]});
  }
  lengths_ = std::make_shared<const std::vector<PartLengths>>(std::move(lengths));
  lengths_step_ = step;
  return lengths_;
}

absl::StatusOr<TextSample> ExampleSampler::Sample(int64_t lane, int64_t step) const {
  ANYORDER_CHECK(lane >= 0 && lane < num_lanes_ && step >= 0)
      << "lane " << lane << " of " << num_lanes_ << ", step " << step;
  const int64_t example = ExampleAt(step * num_lanes_ + lane);
  ASSIGN_OR_RETURN(TextSample sample, SampleOfExample(examples_, example, seed_));
  if (has_step_lengths_) {
    ASSIGN_OR_RETURN(sample.step_lengths, StepLengths(step));
  }
  sample.lane = lane;
  sample.num_lanes = num_lanes_;
  sample.step = step;
  return sample;
}

absl::StatusOr<TextSample> SampleOfExample(const ExampleSource& examples, int64_t example,
                                           uint64_t seed) {
  ASSIGN_OR_RETURN(Example read, examples.ReadExample(example));
  const int64_t whole = read.window_of >= 0 ? read.window_of : example;
  TextSample sample{std::move(read)};
  sample.seed = seed;
  sample.vocabulary = examples.vocabulary();
  sample.example = whole;
  return sample;
}

uint64_t SampleDigest(const TextSample& sample) {
  StreamingDigest digest;
  const int64_t head[] = {sample.lane, sample.step, sample.backward ? 1 : 0,
                          sample.b_follows_a ? 1 : 0};
  digest.Update({reinterpret_cast<const char*>(head), sizeof head});
  Update(digest, sample.tokens);
  Update(digest, sample.input_tokens);
  Update(digest, sample.next_tokens);
  Update(digest, sample.segment);
  Update(digest, sample.is_masked);
  Update(digest, sample.is_functional);
  Update(digest, sample.order);
  // Only where there are any, so that the digests of other kinds stay what they were.
  if (!sample.parts.empty()) {
    const int64_t example[] = {sample.example, sample.label};
    digest.Update({reinterpret_cast<const char*>(example), sizeof example});
    for (const std::vector<int32_t>& part : sample.parts) Update(digest, part);
    if (!sample.packed_ends.empty()) Update(digest, sample.packed_ends);
  }
  if (!std::isnan(sample.score)) {
    digest.Update({reinterpret_cast<const char*>(&sample.score), sizeof sample.score});
  }
  if (sample.answer_end >= 0 || sample.window_begin > 0) {
    const int64_t window[] = {sample.answer_begin, sample.answer_end, sample.window_begin};
    digest.Update({reinterpret_cast<const char*>(window), sizeof window});
  }
  if (!sample.tags.empty()) Update(digest, sample.tags);
  // Only where there is something to say: digests of samples without modes and padding stay as they
  // were.
  if (sample.mode != TextMode::kBidirectional || sample.padding != 0) {
    const int64_t extent[] = {static_cast<int64_t>(sample.mode), sample.padding};
    digest.Update({reinterpret_cast<const char*>(extent), sizeof extent});
  }
  return digest.Value().lo;
}

std::string StepDigest::Hex() const {
  return absl::StrFormat("%016x", (static_cast<uint64_t>(high) << 32) + static_cast<uint64_t>(low));
}

}  // namespace anyorder::data
