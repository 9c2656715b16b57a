#include "kernels/arguments.h"
#include "kernels/reference/operations.h"
#include "kernels/reference/storage.h"

namespace anyorder::kernels::reference {

void Run(const RotaryArgs& args) {
  WithStorage(args.x.dtype(), [&]<typename T>() {
    using G = GradientOf<T>;
    const int64_t head_dim = NumColumns(args.angles);
    const int64_t half = head_dim / 2;
    const int64_t columns = NumColumns(args.x);
    const double sign = args.inverse ? -1.0 : 1.0;
    for (int64_t r = 0; r < NumRows(args.x); ++r) {
      const G* cosines = args.angles.data<G>() + r * head_dim;
      for (int64_t head = 0; head < columns; head += head_dim) {
        const T* x = args.x.data<T>() + r * columns + head;
        T* y = args.y.data<T>() + r * columns + head;
        for (int64_t f = 0; f < half; ++f) {
          const double cosine = Load(cosines[f]);
          const double sine = sign * Load(cosines[half + f]);
          const double low = Load(x[f]);
          const double high = Load(x[f + half]);
          y[f] = Round<T>(low * cosine - high * sine);
          y[f + half] = Round<T>(high * cosine + low * sine);
        }
      }
    }
  });
}

}  // namespace anyorder::kernels::reference
