#include "data/sampling/sample_digest.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

#include "core/base/digest.h"

namespace anyorder::data {
namespace {

// With its length before it, so that no two lists of arrays give the same bytes.
template <typename T>
void Update(StreamingDigest& digest, const std::vector<T>& values) {
  const uint64_t count = values.size();
  digest.Update({reinterpret_cast<const char*>(&count), sizeof count});
  digest.Update({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

}  // namespace

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
  }
  // Only where there is something to say: digests of samples without modes and padding stay as they
  // were.
  if (sample.mode != TextMode::kBidirectional || sample.padding != 0) {
    const int64_t extent[] = {static_cast<int64_t>(sample.mode), sample.padding};
    digest.Update({reinterpret_cast<const char*>(extent), sizeof extent});
  }
  return digest.Value().lo;
}

void StepDigest::Add(uint64_t sample_digest) {
  high += static_cast<double>(sample_digest >> 32);
  low += static_cast<double>(sample_digest & 0xffffffff);
}

std::string StepDigest::Hex() const {
  return absl::StrFormat("%016x", (static_cast<uint64_t>(high) << 32) + static_cast<uint64_t>(low));
}

}  // namespace anyorder::data
