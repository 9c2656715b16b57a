#include "kernels/arguments.h"
#include "kernels/reference/operations.h"
#include "kernels/reference/storage.h"

namespace anyorder::kernels::reference {

void Run(const EmbeddingForwardArgs& args) {
  WithStorage(args.table.dtype(), [&]<typename T>() {
    const int64_t columns = NumColumns(args.table);
    for (int64_t r = 0; r < NumRows(args.y); ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const double entry = Load(args.table.data<T>()[args.ids[r] * columns + c]);
        const double factor = DropoutFactor(args.dropout, args.row_ids, r, c);
        args.y.data<T>()[r * columns + c] = Round<T>(factor * args.scale * entry);
      }
    }
  });
}

void Run(const EmbeddingBackwardArgs& args) {
  WithStorage(args.dy.dtype(), [&]<typename T>() {
    using G = GradientOf<T>;
    const int64_t columns = NumColumns(args.dy);
    for (int64_t r = 0; r < NumRows(args.dy); ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const double factor = DropoutFactor(args.dropout, args.row_ids, r, c);
        G& entry = args.dtable.data<G>()[args.ids[r] * columns + c];
        const double dy = Load(args.dy.data<T>()[r * columns + c]);
        entry = Round<G>(Load(entry) + factor * args.scale * dy);
      }
    }
  });
}

}  // namespace anyorder::kernels::reference
