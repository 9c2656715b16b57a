#include "kernels/cuda/gemm/gemm_table.h"

#include <unistd.h>

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "core/base/file_system.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "kernels/arguments.h"

namespace anyorder::kernels::cuda {
namespace {

constexpr absl::string_view kTitle = "anyorder gemm table 3";
// The first said nothing of sums, the second nothing of batches: such products would be chosen anew
// without a word.
constexpr absl::string_view kEarlierTitles[] = {"anyorder gemm table 1", "anyorder gemm table 2"};
constexpr int kFields = 18;  // of a product's line

// Of the first row of a tensor, of the others and of those of the other products in a batch.
int AlignmentOf(const ConstTensorView& matrix, int64_t step) {
  const int64_t row_bytes = NumColumns(matrix) * SizeOf(matrix.dtype());
  const uint64_t bits = reinterpret_cast<uint64_t>(matrix.raw()) |
                        static_cast<uint64_t>(row_bytes) |
                        static_cast<uint64_t>(step * SizeOf(matrix.dtype())) | 16;
  return static_cast<int>(bits & -bits);
}

const char* TextOf(DType dtype) { return dtype == DType::kBFloat16 ? "bf16" : "fp32"; }

bool ParseDType(absl::string_view text, DType* dtype) {
  *dtype = text == "bf16" ? DType::kBFloat16 : DType::kFloat32;
  return text == TextOf(*dtype);
}

// One of two words.
bool ParseChoice(absl::string_view text, absl::string_view no, absl::string_view yes, bool* value) {
  *value = text == yes;
  return *value || text == no;
}

const char* TextOf(GemmSum sum, bool is_fused) {
  if (sum == GemmSum::kNone) return "nosum";
  if (sum == GemmSum::kA) return is_fused ? "asum-fused" : "asum-apart";
  return is_fused ? "bsum-fused" : "bsum-apart";
}

// REQUIRES the rest of the key.
bool ParseSum(absl::string_view text, GemmKey* key, PinnedGemm* pinned) {
  for (const GemmSum sum : {GemmSum::kNone, GemmSum::kA, GemmSum::kB}) {
    for (const bool is_fused : {false, true}) {
      key->sum = sum;
      pinned->fuses_sum = is_fused;
      if (text == TextOf(sum, is_fused)) return !is_fused || MayFuseSum(*key);
    }
  }
  return false;
}

bool ParseAlignment(absl::string_view text, int* value) {
  return absl::SimpleAtoi(text, value) && *value >= 1 && *value <= 16 &&
         (*value & (*value - 1)) == 0;
}

bool ParseAlgorithm(absl::string_view text, GemmAlgorithm* algorithm) {
  if (text.size() != 16 * algorithm->size()) return false;
  for (size_t i = 0; i < algorithm->size(); ++i) {
    if (!absl::SimpleHexAtoi(text.substr(16 * i, 16), &(*algorithm)[i])) return false;
  }
  return true;
}

bool ParseCount(absl::string_view text, int64_t least, int64_t* value) {
  return absl::SimpleAtoi(text, value) && *value >= least;
}

bool ParseBatch(const absl::string_view* field, GemmKey* key) {
  return ParseCount(field[0], 1, &key->batch) && ParseCount(field[1], 0, &key->step_a) &&
         ParseCount(field[2], 0, &key->step_b) && ParseCount(field[3], 0, &key->step_c) &&
         (key->batch > 1 ? key->step_c >= key->m * key->n
                         : key->step_a + key->step_b + key->step_c == 0);
}

bool ParseLine(absl::string_view line, GemmKey* key, PinnedGemm* pinned) {
  const std::vector<absl::string_view> field = absl::StrSplit(line, ' ');
  return field.size() == kFields && ParseCount(field[0], 1, &key->m) &&
         ParseCount(field[1], 1, &key->n) && ParseCount(field[2], 1, &key->k) &&
         ParseBatch(&field[3], key) && ParseChoice(field[7], "a", "aT", &key->transpose_a) &&
         ParseChoice(field[8], "b", "bT", &key->transpose_b) && ParseDType(field[9], &key->in) &&
         ParseDType(field[10], &key->out) &&
         ParseChoice(field[11], "plain", "bias", &key->has_bias) &&
         ParseChoice(field[12], "write", "add", &key->accumulates) &&
         ParseSum(field[13], key, pinned) && ParseAlignment(field[14], &key->align_a) &&
         ParseAlignment(field[15], &key->align_b) && ParseAlignment(field[16], &key->align_c) &&
         ParseAlgorithm(field[17], &pinned->algorithm);
}

}  // namespace

GemmKey GemmKeyOf(const GemmArgs& args) {
  GemmKey key;
  key.transpose_a = args.transpose_a;
  key.transpose_b = args.transpose_b;
  const GemmSizes size = SizesOf(args);
  key.m = size.m;
  key.n = size.n;
  key.k = size.k;
  key.in = args.a.dtype();
  key.out = args.c.dtype();
  key.has_bias = !args.bias.is_null();
  key.accumulates = args.beta != 0.0f;
  if (!args.a_sum.is_null()) key.sum = GemmSum::kA;
  if (!args.b_sum.is_null()) key.sum = GemmSum::kB;
  key.batch = args.batch.count;
  if (key.batch > 1) {
    key.step_a = args.batch.a;
    key.step_b = args.batch.b;
    key.step_c = args.batch.c;
  }
  key.align_a = AlignmentOf(args.a, key.step_a);
  key.align_b = AlignmentOf(args.b, key.step_b);
  key.align_c = AlignmentOf(args.c, key.step_c);
  return key;
}

std::string GemmTable::ToText() const {
  std::string text = absl::StrCat(kTitle, "\nchip ", chip, "\nlibrary ", library, "\n");
  for (const auto& [key, pinned] : algorithms) {
    absl::StrAppend(&text, key.m, " ", key.n, " ", key.k, " ", key.batch);
    absl::StrAppend(&text, " ", key.step_a, " ", key.step_b, " ", key.step_c);
    absl::StrAppend(&text, key.transpose_a ? " aT" : " a", key.transpose_b ? " bT" : " b");
    absl::StrAppend(&text, " ", TextOf(key.in), " ", TextOf(key.out));
    absl::StrAppend(&text, key.has_bias ? " bias" : " plain", key.accumulates ? " add" : " write");
    absl::StrAppend(&text, " ", TextOf(key.sum, pinned.fuses_sum));
    absl::StrAppend(&text, " ", key.align_a, " ", key.align_b, " ", key.align_c, " ");
    for (const uint64_t word : pinned.algorithm) absl::StrAppendFormat(&text, "%016x", word);
    text += "\n";
  }
  return absl::StrCat(text, "end ", algorithms.size(), "\n");
}

absl::StatusOr<GemmTable> ParseGemmTable(const std::string& text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  const auto damaged = [](size_t line, absl::string_view what) {
    return DataLoss("line ", line + 1, ": ", what,
                    "; delete the file (algorithms are selected again, and "
                    "results are not bitwise identical from then on)");
  };
  GemmTable table;
  if (absl::c_linear_search(kEarlierTitles, lines[0])) {
    return FailedPrecondition("line 1: '", lines[0], "' is of an earlier version");
  }
  if (lines[0] != kTitle) return damaged(0, absl::StrCat("is not '", kTitle, "'"));
  absl::string_view chip = lines.size() > 1 ? lines[1] : "";
  if (!absl::ConsumePrefix(&chip, "chip ")) return damaged(1, "names no chip");
  table.chip = std::string(chip);
  absl::string_view library = lines.size() > 2 ? lines[2] : "";
  if (!absl::ConsumePrefix(&library, "library ") || !absl::SimpleAtoi(library, &table.library))
    return damaged(2, "names no library");
  for (size_t i = 3; i < lines.size(); ++i) {
    if (lines[i] == absl::StrCat("end ", table.algorithms.size()) && i + 2 == lines.size() &&
        lines[i + 1].empty())
      return table;
    GemmKey key;
    PinnedGemm pinned;
    if (!ParseLine(lines[i], &key, &pinned)) return damaged(i, "is no product");
    if (!table.algorithms.emplace(key, pinned).second)
      return damaged(i, "is a product that was there before");
  }
  return damaged(lines.size() - 1, "the end is missing");
}

std::string PathBeside(const std::string& path, const GemmTable& table) {
  std::string text = absl::StrCat(path, ".");
  for (const char c : absl::StrCat(table.chip, "-", table.library)) {
    const bool is_plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
    if (is_plain || text.back() != '-') text += is_plain ? c : '-';
  }
  return text;
}

absl::StatusOr<GemmTable> ReadGemmTable(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxTableBytes));
  return Annotate(ParseGemmTable(text), absl::StrCat("'", path, "'"));
}

absl::Status WriteGemmTable(const GemmTable& table, const std::string& path) {
  const std::string text = table.ToText();
  // Runs may share a table: each has a temporary file of its own.
  const std::string temporary = absl::StrCat(path, ".", ::getpid(), ".tmp");
  RETURN_IF_ERROR(ReplaceFile(temporary, text));
  const absl::Status renamed = FileSystem::Posix()->Rename(temporary, path);
  if (!renamed.ok()) ::unlink(temporary.c_str());
  return renamed;
}

}  // namespace anyorder::kernels::cuda
