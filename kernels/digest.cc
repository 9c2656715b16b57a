#include "kernels/digest.h"

#include <cstring>

#include "kernels/arguments.h"

namespace anyorder::kernels {

void Backend::Digest(ConstTensorView x, TensorView digest, StreamView) {
  CheckDigest(x, digest);
  const auto* const bytes = static_cast<const char*>(x.raw());
  const int64_t whole = x.num_bytes() / 8;
  DigestValue sums;
  for (int64_t i = 0; i < whole; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + 8 * i, sizeof word);
    AddWord(word, i, sums);
  }
  if (x.num_bytes() % 8 != 0) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + 8 * whole, static_cast<size_t>(x.num_bytes() % 8));
    AddWord(word, whole, sums);
  }
  const DigestValue value = FinishDigest(sums, x.num_bytes());
  std::memcpy(digest.raw(), &value, sizeof value);
}

}  // namespace anyorder::kernels
