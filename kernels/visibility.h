// Which key slots a query row may attend to, as O(T) integers instead of a T x T mask.
//
//   visible(i, j) = DOC(i, j) and (key[j] <= lim[i] or grp[i] == grp[j] >= 0)
//                             and (BAND(i, j) or glob[i] or glob[j])
//   DOC(i, j)     = doc[j] != kDocPad and (doc[j] == kDocAny or doc[i] == doc[j])
//   BAND(i, j) = with d = pos[i] - pos[j]: -right * stride <= d <= left * stride and d mod stride
//   == 0
//
// Rows and keys are slots, not positions: several slots may share one `pos`. A mask is expressible
// by (lim, key) alone exactly when the rows' visible key sets form a chain under inclusion.

#pragma once

#include <cstdint>
#include <limits>

namespace anyorder::kernels {

inline constexpr int32_t kDocPad = -1;  // a slot that is never seen and never read
inline constexpr int32_t kDocAny = -2;  // recurrence memory: visible to the whole lane
inline constexpr int32_t kKeyNever =
    std::numeric_limits<int32_t>::max();  // reachable only through grp

// Arrays of one attention call; all are host or device pointers as the backend demands.
struct RowVisibility {  // each [num_rows]
  const int32_t* pos = nullptr;
  const int32_t* lim = nullptr;
  const int32_t* grp = nullptr;
  const int32_t* doc = nullptr;
  const int32_t* seg = nullptr;
  const uint8_t* glob = nullptr;

  bool operator==(const RowVisibility&) const = default;  // the same arrays
};
struct KeyVisibility {  // each [batch_size, num_keys]
  const int32_t* pos = nullptr;
  const int32_t* key = nullptr;
  const int32_t* grp = nullptr;
  const int32_t* doc = nullptr;
  const int32_t* seg = nullptr;
  const uint8_t* glob = nullptr;

  bool operator==(const KeyVisibility&) const = default;
};

// Window of one (layer, head) in positions; -1 means unlimited on that side. stride >= 1 (1:
// undilated).
struct Band {
  int32_t left = -1;
  int32_t right = -1;
  int32_t stride = 1;

  constexpr bool unlimited() const { return left < 0 && right < 0 && stride == 1; }
  constexpr bool Contains(int64_t distance) const {  // distance = pos[i] - pos[j]
    if (left >= 0 && distance > int64_t{left} * stride) return false;
    if (right >= 0 && distance < -int64_t{right} * stride) return false;
    return stride == 1 || distance % stride == 0;  // division is what a GPU lacks
  }
};

// The definition, one pair at a time; fast kernels must agree with it. constexpr, so that device
// code may call it.
constexpr bool IsVisible(const RowVisibility& rows, int64_t i, const KeyVisibility& keys, int64_t j,
                         const Band& band) {
  const int32_t doc = keys.doc[j];
  if (doc == kDocPad || (doc != kDocAny && doc != rows.doc[i])) return false;
  const bool in_order = keys.key[j] <= rows.lim[i];
  const bool in_group = rows.grp[i] >= 0 && rows.grp[i] == keys.grp[j];
  if (!in_order && !in_group) return false;
  return rows.glob[i] != 0 || keys.glob[j] != 0 ||
         band.Contains(int64_t{rows.pos[i]} - int64_t{keys.pos[j]});
}

}  // namespace anyorder::kernels
