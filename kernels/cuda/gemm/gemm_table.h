// Which algorithm each shape of matrix product runs with: chosen once, kept in a text file
// (FORMAT.md), so that a run keeps its bits when it is resumed and a better choice can be measured
// once for all (TuneGemms). Host code, but for that without a GPU too.

#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/gemm.h"

namespace anyorder::kernels::cuda {

// The file of pinned algorithms: read if it is there, and written as new shapes turn up.
struct GemmOptions {
  std::string table;         // "": neither
  bool writes_table = true;  // one rank of a job does
};

// The operand whose sums a product makes, too (GemmArgs::a_sum, b_sum).
enum class GemmSum { kNone, kA, kB };

// All that an algorithm may depend on.
struct GemmKey {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  // GemmBatch: how many products, and elements from one to the next; 0 where there is one.
  int64_t batch = 1;
  int64_t step_a = 0;
  int64_t step_b = 0;
  int64_t step_c = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  DType in = DType::kFloat32;
  DType out = DType::kFloat32;
  bool has_bias = false;
  bool accumulates = false;
  GemmSum sum = GemmSum::kNone;
  // Bytes that each address is a multiple of, at most 16, in all products of a batch.
  int align_a = 16;
  int align_b = 16;
  int align_c = 16;

  friend auto operator<=>(const GemmKey&, const GemmKey&) = default;
};
// REQUIRES checked arguments.
GemmKey GemmKeyOf(const GemmArgs& args);
// Whether the library may be asked for the sum along with the product: it stores sums in the
// result's dtype, and ours are fp32. Sums of batches are always made apart: none of ours is large.
inline bool MayFuseSum(const GemmKey& key) {
  return key.sum != GemmSum::kNone && key.out == DType::kFloat32 && key.batch == 1;
}

// cuBLASLt's cublasLtMatmulAlgo_t, which its version alone can read.
using GemmAlgorithm = std::array<uint64_t, 8>;

struct PinnedGemm {
  GemmAlgorithm algorithm = {};
  // Whether the kernel of a product with a sum makes that, too. Else a kernel of ours does, after
  // it.
  bool fuses_sum = false;

  friend bool operator==(const PinnedGemm&, const PinnedGemm&) = default;
};

struct GemmTable {
  std::string chip;  // "NVIDIA H200, sm_90"; of another chip or library the algorithms mean nothing
  int64_t library = 0;  // cublasLtGetVersion()
  std::map<GemmKey, PinnedGemm> algorithms;

  std::string ToText() const;
};

// DataLoss naming the line, for what GemmTable::ToText did not write; FailedPrecondition for what
// that of an earlier version did.
absl::StatusOr<GemmTable> ParseGemmTable(const std::string& text);
// Where products are pinned if the file at `path` is not for the table's chip and library: beside
// it, so that neither is lost.
std::string PathBeside(const std::string& path, const GemmTable& table);
// Errors with the path; NotFound if nothing is there.
absl::StatusOr<GemmTable> ReadGemmTable(const std::string& path);
// The whole file or nothing: others may read it at any time.
absl::Status WriteGemmTable(const GemmTable& table, const std::string& path);

// Two bf16 numbers, or one in fp32, of either sign and of sizes from 2^-15 to 2: their sums are
// rounded, so that results show the order in which they were added. `draw`: 32 random bits.
constexpr uint32_t TuningOperand(uint32_t draw) { return (draw & 0x87ff87ffu) | 0x38003800u; }

struct TunedGemm {
  GemmKey key;
  bool fuses_sum = false;          // the fastest does
  double before_microseconds = 0;  // of the algorithm that the table had; negative: it does not run
  double best_microseconds = 0;    // negative: none runs and repeats
  int candidates = 0;
  int unsteady =
      0;  // the fastest so far, the table's too, that did not give the same bits each time
};

// Times all candidates of each shape in the table at `path` on the first GPU, sums fused and apart,
// calls `report` after each shape, and writes the table with the fastest. `begin` is called once
// nothing can be refused any more. Errors: those of OpenDevice and ReadGemmTable; NotFound without
// cuBLASLt; FailedPrecondition if the table is another chip's or library's.
absl::Status TuneGemms(const std::string& path, const std::function<void()>& begin,
                       const std::function<void(const TunedGemm&)>& report);

}  // namespace anyorder::kernels::cuda
