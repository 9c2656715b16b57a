// Products of a banded matrix [T, W], row i of which holds the entries of columns i - offset(w),
// with tall matrices [T, D]: what the loop and the chunks of windowed_attention.h do differently.

#pragma once

#include <cstdint>
#include <memory>

#include "kernels/backend.h"

namespace anyorder::kernels::testing {

class Diagonals {
 public:
  virtual ~Diagonals() = default;
  virtual int64_t count() const = 0;            // W
  virtual int64_t offset(int64_t w) const = 0;  // pos_i - pos_j of diagonal w
  // band[i, w] = a[i] . b[i - offset(w)]; anything where that is outside.
  virtual void Score(const float* a, const float* b, float* band) = 0;
  // out[i] += sum over w of band[i, w] * b[i - offset(w)]. REQUIRES: band is 0 outside, here and
  // below.
  virtual void AddRows(const float* band, const float* b, float* out) = 0;
  // out[i - offset(w)] += band[i, w] * a[i].
  virtual void AddColumns(const float* band, const float* a, float* out) = 0;
};

std::unique_ptr<Diagonals> MakeLoopDiagonals(int64_t length, int64_t dim, const Band& band);
// Null unless the band is undilated, reaches equally far to both sides, and its whole window
// divides the length.
std::unique_ptr<Diagonals> MakeChunkDiagonals(int64_t length, int64_t dim, const Band& band,
                                              Backend& backend);

}  // namespace anyorder::kernels::testing
