#include "kernels/cpu/gemm.h"

#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <compare>
#include <cstdlib>
#include <map>
#include <unordered_map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "kernels/arguments.h"
#include "kernels/cpu/parallel.h"

namespace anyorder::kernels::cpu {

namespace {

using dnnl::memory;

memory::data_type DataType(DType dtype) {
  return dtype == DType::kBFloat16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// What oneDNN compiles a block for. Strides are part of it.
struct BlockKind {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t a_stride = 0;
  int64_t b_stride = 0;
  int64_t c_stride = 0;
  DType dtype = DType::kFloat32;
  DType c_dtype = DType::kFloat32;
  bool transpose_a = false;
  bool transpose_b = false;
  bool bias = false;
  bool accumulate = false;
  float scale = 1.0f;

  friend auto operator<=>(const BlockKind&, const BlockKind&) = default;
};

// Within its scope oneDNN, in this thread, sees one OpenMP thread.
class OneThreadScope {
 public:
  OneThreadScope() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThreadScope() { omp_set_num_threads(before_); }
  OneThreadScope(const OneThreadScope&) = delete;
  OneThreadScope& operator=(const OneThreadScope&) = delete;

 private:
  int before_;
};

struct Primitive {
  memory::desc a;
  memory::desc b;
  memory::desc bias;
  memory::desc c;
  memory::desc scratch;
  dnnl::matmul matmul;
};

memory::desc Matrix(int64_t rows, int64_t columns, int64_t stride, bool transposed, DType dtype) {
  // oneDNN refuses a stride below the row's length, which the caller may give for a single row.
  return transposed
             ? memory::desc({rows, columns}, DataType(dtype), {1, std::max(stride, rows)})
             : memory::desc({rows, columns}, DataType(dtype), {std::max(stride, columns), 1});
}

void AppendScale(float scale, dnnl::post_ops* post_ops) {
#if DNNL_VERSION_MAJOR >= 3
  post_ops->append_eltwise(dnnl::algorithm::eltwise_linear, scale, 0.0f);
#else
  post_ops->append_eltwise(1.0f, dnnl::algorithm::eltwise_linear, scale, 0.0f);
#endif
}

Primitive MakePrimitive(const BlockKind& kind, const dnnl::engine& engine) {
  Primitive primitive;
  primitive.a = Matrix(kind.m, kind.k, kind.a_stride, kind.transpose_a, kind.dtype);
  primitive.b = Matrix(kind.k, kind.n, kind.b_stride, kind.transpose_b, kind.dtype);
  primitive.c = Matrix(kind.m, kind.n, kind.c_stride, false, kind.c_dtype);
  if (kind.bias) primitive.bias = Matrix(1, kind.n, kind.n, false, kind.dtype);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops post_ops;
  if (kind.scale != 1.0f) AppendScale(kind.scale, &post_ops);
  if (kind.accumulate) post_ops.append_sum(1.0f);
  attributes.set_post_ops(post_ops);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc primitive_desc =
      kind.bias
          ? dnnl::matmul::primitive_desc(engine, primitive.a, primitive.b, primitive.bias,
                                         primitive.c, attributes)
          : dnnl::matmul::primitive_desc(engine, primitive.a, primitive.b, primitive.c, attributes);
#else
  const dnnl::matmul::desc desc =
      kind.bias ? dnnl::matmul::desc(primitive.a, primitive.b, primitive.bias, primitive.c)
                : dnnl::matmul::desc(primitive.a, primitive.b, primitive.c);
  const dnnl::matmul::primitive_desc primitive_desc(desc, attributes, engine);
#endif
  primitive.scratch = primitive_desc.scratchpad_desc();
  primitive.matmul = dnnl::matmul(primitive_desc);
  return primitive;
}

// Whether oneDNN has plain loops for it: "ref:any", and, except on x86, also "gemm:jit:bf16".
bool IsPlainLoops(const Primitive& primitive) {
#if defined(__x86_64__)
  constexpr bool kGeneratesGemm = true;
#else
  constexpr bool kGeneratesGemm = false;
#endif
  const char* name = "";
  dnnl_primitive_desc_query(primitive.matmul.get_primitive_desc(), dnnl_query_impl_info_str, 0,
                            &name);
  return absl::StartsWith(name, "ref") || (!kGeneratesGemm && absl::StartsWith(name, "gemm"));
}

// How C is cut: rows x columns of a block, by shape only.
struct Cut {
  int64_t rows = 0;
  int64_t columns = 0;
};
int64_t Blocks(const GemmSizes& size, const Cut& cut) {
  return ((size.m + cut.rows - 1) / cut.rows) * ((size.n + cut.columns - 1) / cut.columns);
}
constexpr int64_t kMostRows = 256;
constexpr int64_t kMostColumns = 1024;
// oneDNN 3.7 reads and writes a single row or column of a larger matrix as if its elements stood
// side by side: wrong numbers, in fp32 and bf16. So no block of many is left with one. Release 2.6
// does it right.
int64_t WithoutSingles(int64_t whole, int64_t cut) {
  while (DNNL_VERSION_MAJOR >= 3 && cut > 1 && whole > cut && whole % cut == 1) --cut;
  return cut;
}
// Blocks of 256 x 1024 run within a few per cent of the uncut product (Zen 5, 2026-11; 128 x 256
// costs 10-15 %). A long K in fp32 does better with narrower ones (214 -> 251 GFLOP/s at K = 3072).
// A product of few blocks is cut further as long as the pieces are worth a thread's while.
Cut CutOf(const GemmSizes& size, DType dtype) {
  constexpr int64_t kLongInner = 2048;
  constexpr int64_t kFewestBlocks = 4;
  constexpr int64_t kFewestRows = 64;
  constexpr int64_t kFewestColumns = 128;
  constexpr int64_t kWorthCutting = 8'000'000;  // multiplications
  const bool narrow = dtype == DType::kFloat32 && size.k >= kLongInner;
  Cut cut{std::min(size.m, kMostRows), std::min(size.n, narrow ? 512 : kMostColumns)};
  while (Blocks(size, cut) < kFewestBlocks && cut.rows * cut.columns * size.k > kWorthCutting) {
    if (cut.columns > kFewestColumns && cut.columns > cut.rows) {
      cut.columns = std::max(kFewestColumns, cut.columns / 2);
    } else if (cut.rows > kFewestRows) {
      cut.rows = std::max(kFewestRows, cut.rows / 2);
    } else if (cut.columns > kFewestColumns) {
      cut.columns = std::max(kFewestColumns, cut.columns / 2);
    } else {
      break;
    }
  }
  return {WithoutSingles(size.m, cut.rows), WithoutSingles(size.n, cut.columns)};
}

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};

// What RunConverted needs: fp32 copies of pieces of a block's operands, its sums, and its bias. The
// copies are a small part of the work and pass through the caches.
struct alignas(64) ConvertedBlock {
  static constexpr int64_t kInner = 512;  // terms of the sums over K in a piece
  float a[kMostRows * kInner];
  float b[kInner * kMostColumns];
  float sums[kMostRows * kMostColumns];
  float bias[kMostColumns];
};

// What one OpenMP thread needs of its own.
struct Worker {
  explicit Worker(const dnnl::engine& engine) : stream(engine) {}

  void* Scratch(size_t bytes) {
    if (bytes > scratch_bytes) {
      constexpr size_t kPage = 4096;
      scratch_bytes = (bytes / kPage + 1) * kPage;
      scratch.reset(std::aligned_alloc(kPage, scratch_bytes));
      ANYORDER_CHECK(scratch != nullptr) << "no memory for " << bytes << " bytes of GEMM scratch";
    }
    return scratch.get();
  }
  ConvertedBlock& Converted() {
    if (converted == nullptr) converted = std::make_unique_for_overwrite<ConvertedBlock>();
    return *converted;
  }

  dnnl::stream stream;
  std::unique_ptr<ConvertedBlock> converted;
  std::unique_ptr<void, FreeDeleter> scratch;
  size_t scratch_bytes = 0;
};

const char* Address(const ConstTensorView& x, int64_t element) {
  return static_cast<const char*>(x.raw()) + element * SizeOf(x.dtype());
}

// rows x columns of x, a matrix of rows of `stride`, from flat element `first` on, side by side.
void Convert(const ConstTensorView& x, int64_t first, int64_t stride, int64_t rows, int64_t columns,
             float* out) {
  const auto copy = [&]<typename T>(const T* from) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        out[r * columns + c] = static_cast<float>(from[first + r * stride + c]);
  };
  if (x.dtype() == DType::kBFloat16) return copy(x.data<BFloat16>());
  copy(x.data<float>());
}

// c = sums + bias + beta * c for a block of c, from flat element `first` on, rounded once. `bias`
// is the block's, null for none.
void WriteSums(const GemmArgs& args, int64_t first, int64_t stride, const Cut& block,
               const float* sums, const float* bias) {
  const auto write = [&]<typename T>(T* c) {
    for (int64_t i = 0; i < block.rows; ++i) {
      for (int64_t j = 0; j < block.columns; ++j) {
        float value = sums[i * block.columns + j];
        if (bias != nullptr) value += bias[j];
        T& element = c[first + i * stride + j];
        if (args.beta != 0.0f) value += static_cast<float>(element);
        element = T(value);
      }
    }
  };
  if (args.c.dtype() == DType::kBFloat16) return write(args.c.data<BFloat16>());
  write(args.c.data<float>());
}

}  // namespace

std::string OneDnnVersion() {
  const dnnl_version_t* const version = dnnl_version();
  return absl::StrCat(version->major, ".", version->minor, ".", version->patch);
}

bool MultipliesBFloat16() {
  static const bool multiplies = [] {
    const OneThreadScope one_thread;
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    BlockKind kind;
    kind.m = kind.n = kind.k = kind.a_stride = kind.b_stride = kind.c_stride = 32;
    kind.dtype = DType::kBFloat16;
    try {
      for (const DType c_dtype : {DType::kFloat32, DType::kBFloat16}) {
        kind.c_dtype = c_dtype;
        if (IsPlainLoops(MakePrimitive(kind, engine))) return false;
      }
      return true;
    } catch (const dnnl::error&) {
      return false;
    }
  }();
  return multiplies;
}

class Gemm::Impl {
 public:
  explicit Impl(int num_threads) : engine_(dnnl::engine::kind::cpu, 0) {
    for (int i = 0; i < num_threads; ++i) workers_.push_back(std::make_unique<Worker>(engine_));
  }

  void Run(const GemmArgs& args) {
    const GemmSizes size = CheckArguments(args);
    const int64_t count = args.batch.count;
    if (size.m == 0 || size.n == 0 || count == 0) return;
    // oneDNN has no products without an inner dimension.
    const bool converts =
        size.k == 0 || (args.a.dtype() == DType::kBFloat16 && !MultipliesBFloat16());
    // By the shape of one product, so that it has the same bits in a batch.
    const Cut cut = CutOf(size, args.a.dtype());
    const int64_t row_blocks = (size.m + cut.rows - 1) / cut.rows;
    const int64_t column_blocks = (size.n + cut.columns - 1) / cut.columns;
    // At most four kinds: inner, right edge, bottom edge, corner.
    BlockPlan plans[2][2];
    for (const int bottom : {0, 1}) {
      for (const int right : {0, 1}) {
        const Cut block{bottom ? size.m - (row_blocks - 1) * cut.rows : cut.rows,
                        right ? size.n - (column_blocks - 1) * cut.columns : cut.columns};
        plans[bottom][right] = PlanOf(args, size, block, converts);
      }
    }
    const int threads = static_cast<int>(workers_.size());
    ParallelFor(count * row_blocks * column_blocks, threads, [&](int64_t block) {
      const int64_t i = block % row_blocks;
      const int64_t j = block / row_blocks % column_blocks;
      const BlockPlan& plan = plans[i == row_blocks - 1][j == column_blocks - 1];
      const GemmArgs product = ProductOf(args, block / (row_blocks * column_blocks));
      const auto run = converts ? &Impl::RunConverted : &Impl::RunBlock;
      (this->*run)(product, size, plan, i * cut.rows, j * cut.columns);
    });
  }

 private:
  // How a block of C is computed: K in one piece, or converted in pieces of kInner.
  struct BlockPlan {
    Cut block;
    const Primitive* piece = nullptr;  // of all pieces of K but the last, if there are others
    const Primitive* last = nullptr;   // null: K = 0
  };

  BlockPlan PlanOf(const GemmArgs& args, const GemmSizes& size, const Cut& block, bool converts) {
    constexpr int64_t kInner = ConvertedBlock::kInner;
    BlockPlan plan{block};
    const GemmSizes whole{block.rows, block.columns, size.k};
    if (!converts) {
      plan.last = &Find(KindOf(args, size, whole));
      return plan;
    }
    const auto find = [&](int64_t k) {
      const GemmSizes piece{block.rows, block.columns, k};
      BlockKind kind = KindOf(args, piece, piece);
      kind.dtype = kind.c_dtype = DType::kFloat32;
      kind.bias = false;
      kind.accumulate = true;
      return &Find(kind);
    };
    if (size.k > kInner) plan.piece = find(kInner);
    if (size.k > 0) plan.last = find((size.k - 1) % kInner + 1);
    return plan;
  }

  // Of a block's product, with operands that lie in matrices of the sizes `stored`.
  static BlockKind KindOf(const GemmArgs& args, const GemmSizes& stored, const GemmSizes& block) {
    BlockKind kind;
    kind.m = block.m;
    kind.n = block.n;
    kind.k = block.k;
    kind.a_stride = args.transpose_a ? stored.m : stored.k;
    kind.b_stride = args.transpose_b ? stored.k : stored.n;
    kind.c_stride = stored.n;
    kind.dtype = args.a.dtype();
    kind.c_dtype = args.c.dtype();
    kind.transpose_a = args.transpose_a;
    kind.transpose_b = args.transpose_b;
    kind.bias = !args.bias.is_null();
    kind.accumulate = args.beta != 0.0f;
    kind.scale = args.scale;
    return kind;
  }

  const Primitive& Find(const BlockKind& kind) {
    const auto [slot, is_new] = primitives_.try_emplace(kind);
    if (!is_new) return slot->second;
    const OneThreadScope one_thread;
    try {
      slot->second = MakePrimitive(kind, engine_);
    } catch (const dnnl::error& error) {
      ANYORDER_CHECK(false) << "oneDNN refuses a product of " << kind.m << "x" << kind.k << "x"
                            << kind.n << " in " << Name(kind.dtype) << ": " << error.what();
    }
    return slot->second;
  }

  void RunBlock(const GemmArgs& args, const GemmSizes& size, const BlockPlan& plan, int64_t row,
                int64_t column) {
    Multiply(*plan.last, Address(args.a, args.transpose_a ? row : row * size.k),
             Address(args.b, args.transpose_b ? column * size.k : column),
             args.bias.is_null() ? nullptr : Address(args.bias, column),
             Address(args.c, row * size.n + column));
  }

  void RunConverted(const GemmArgs& args, const GemmSizes& size, const BlockPlan& plan, int64_t row,
                    int64_t column) {
    ConvertedBlock& x = workers_[omp_get_thread_num()]->Converted();
    const auto [m, n] = plan.block;
    std::fill_n(x.sums, m * n, 0.0f);
    for (int64_t k = 0; k < size.k; k += ConvertedBlock::kInner) {
      const int64_t terms = std::min(ConvertedBlock::kInner, size.k - k);
      if (args.transpose_a)
        Convert(args.a, k * size.m + row, size.m, terms, m, x.a);
      else
        Convert(args.a, row * size.k + k, size.k, m, terms, x.a);
      if (args.transpose_b)
        Convert(args.b, column * size.k + k, size.k, n, terms, x.b);
      else
        Convert(args.b, k * size.n + column, size.n, terms, n, x.b);
      Multiply(k + terms == size.k ? *plan.last : *plan.piece, x.a, x.b, nullptr, x.sums);
    }
    const bool biased = !args.bias.is_null();
    if (biased) Convert(args.bias, column, n, 1, n, x.bias);
    WriteSums(args, row * size.n + column, size.n, plan.block, x.sums, biased ? x.bias : nullptr);
  }

  // By the calling thread, with addresses of a block's first elements.
  void Multiply(const Primitive& primitive, const void* a, const void* b, const void* bias,
                const void* c) {
    Worker& worker = *workers_[omp_get_thread_num()];
    const OneThreadScope one_thread;
    const auto view = [&](const memory::desc& desc, const void* data) {
      return memory(desc, engine_, const_cast<void*>(data));
    };
    try {
      std::unordered_map<int, memory> operands;
      operands.emplace(DNNL_ARG_SRC, view(primitive.a, a));
      operands.emplace(DNNL_ARG_WEIGHTS, view(primitive.b, b));
      operands.emplace(DNNL_ARG_DST, view(primitive.c, c));
      if (bias != nullptr) operands.emplace(DNNL_ARG_BIAS, view(primitive.bias, bias));
      operands.emplace(DNNL_ARG_SCRATCHPAD,
                       view(primitive.scratch, worker.Scratch(primitive.scratch.get_size())));
      primitive.matmul.execute(worker.stream, operands);
      worker.stream.wait();
    } catch (const dnnl::error& error) {
      ANYORDER_CHECK(false) << "oneDNN failed: " << error.what();
    }
  }

  dnnl::engine engine_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::map<BlockKind, Primitive> primitives_;  // references stay while others are added
};

Gemm::Gemm(int num_threads) : impl_(std::make_unique<Impl>(num_threads)) {}
Gemm::~Gemm() = default;
void Gemm::Run(const GemmArgs& args) { impl_->Run(args); }

}  // namespace anyorder::kernels::cpu
