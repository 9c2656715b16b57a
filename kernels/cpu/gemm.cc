#include "kernels/cpu/gemm.h"

#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <compare>
#include <cstdlib>
#include <map>
#include <unordered_map>
#include <vector>

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

// How C is cut: rows x columns of a block, by shape only.
struct Cut {
  int64_t rows = 0;
  int64_t columns = 0;
};
int64_t Blocks(const GemmSizes& size, const Cut& cut) {
  return ((size.m + cut.rows - 1) / cut.rows) * ((size.n + cut.columns - 1) / cut.columns);
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
  Cut cut{std::min<int64_t>(size.m, 256), std::min<int64_t>(size.n, narrow ? 512 : 1024)};
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
  return cut;
}

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
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

  dnnl::stream stream;
  std::unique_ptr<void, FreeDeleter> scratch;
  size_t scratch_bytes = 0;
};

const char* Address(const ConstTensorView& x, int64_t element) {
  return static_cast<const char*>(x.raw()) + element * SizeOf(x.dtype());
}

// One product.
void RunWithoutInnerDimension(const GemmArgs& args, const GemmSizes& size) {
  const auto fill = [&]<typename T>(T* c) {
    for (int64_t i = 0; i < size.m * size.n; ++i) {
      float value = 0.0f;
      if (!args.bias.is_null()) {
        value = args.bias.dtype() == DType::kBFloat16
                    ? static_cast<float>(args.bias.data<BFloat16>()[i % size.n])
                    : args.bias.data<float>()[i % size.n];
      }
      if (args.beta != 0.0f) value += static_cast<float>(c[i]);
      c[i] = T(value);
    }
  };
  if (args.c.dtype() == DType::kBFloat16) return fill(args.c.data<BFloat16>());
  fill(args.c.data<float>());
}

}  // namespace

std::string OneDnnVersion() {
  const dnnl_version_t* const version = dnnl_version();
  return absl::StrCat(version->major, ".", version->minor, ".", version->patch);
}

class Gemm::Impl {
 public:
  explicit Impl(int num_threads) : engine_(dnnl::engine::kind::cpu, 0) {
    for (int i = 0; i < num_threads; ++i) workers_.push_back(std::make_unique<Worker>(engine_));
    bfloat16_ = ProbeBFloat16();
  }

  bool supports_bfloat16() const { return bfloat16_; }

  void Run(const GemmArgs& args) {
    const GemmSizes size = CheckArguments(args);
    const int64_t count = args.batch.count;
    if (size.m == 0 || size.n == 0 || count == 0) return;
    for (int64_t i = 0; i < count && size.k == 0; ++i)
      RunWithoutInnerDimension(ProductOf(args, i), size);
    if (size.k == 0) return;
    // By the shape of one product, so that it has the same bits in a batch.
    const Cut cut = CutOf(size, args.a.dtype());
    const int64_t row_blocks = (size.m + cut.rows - 1) / cut.rows;
    const int64_t column_blocks = (size.n + cut.columns - 1) / cut.columns;
    // At most four kinds: inner, right edge, bottom edge, corner.
    const Primitive* kinds[2][2];
    for (const int bottom : {0, 1}) {
      for (const int right : {0, 1}) {
        const int64_t m = bottom ? size.m - (row_blocks - 1) * cut.rows : cut.rows;
        const int64_t n = right ? size.n - (column_blocks - 1) * cut.columns : cut.columns;
        kinds[bottom][right] = &Find(KindOf(args, size, m, n));
      }
    }
    const int threads = static_cast<int>(workers_.size());
    ParallelFor(count * row_blocks * column_blocks, threads, [&](int64_t block) {
      const int64_t i = block % row_blocks;
      const int64_t j = block / row_blocks % column_blocks;
      const Primitive& primitive = *kinds[i == row_blocks - 1][j == column_blocks - 1];
      const GemmArgs product = ProductOf(args, block / (row_blocks * column_blocks));
      RunBlock(product, size, primitive, i * cut.rows, j * cut.columns);
    });
  }

 private:
  static BlockKind KindOf(const GemmArgs& args, const GemmSizes& size, int64_t m, int64_t n) {
    BlockKind kind;
    kind.m = m;
    kind.n = n;
    kind.k = size.k;
    kind.a_stride = args.transpose_a ? size.m : size.k;
    kind.b_stride = args.transpose_b ? size.k : size.n;
    kind.c_stride = size.n;
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

  void RunBlock(const GemmArgs& args, const GemmSizes& size, const Primitive& primitive,
                int64_t row, int64_t column) {
    Worker& worker = *workers_[omp_get_thread_num()];
    const OneThreadScope one_thread;
    const auto view = [&](const memory::desc& desc, const ConstTensorView& x, int64_t element) {
      return memory(desc, engine_, const_cast<char*>(Address(x, element)));
    };
    try {
      std::unordered_map<int, memory> operands;
      operands.emplace(DNNL_ARG_SRC,
                       view(primitive.a, args.a, args.transpose_a ? row : row * size.k));
      operands.emplace(DNNL_ARG_WEIGHTS,
                       view(primitive.b, args.b, args.transpose_b ? column * size.k : column));
      operands.emplace(DNNL_ARG_DST, view(primitive.c, args.c, row * size.n + column));
      if (!args.bias.is_null()) {
        operands.emplace(DNNL_ARG_BIAS, view(primitive.bias, args.bias, column));
      }
      operands.emplace(DNNL_ARG_SCRATCHPAD, memory(primitive.scratch, engine_,
                                                   worker.Scratch(primitive.scratch.get_size())));
      primitive.matmul.execute(worker.stream, operands);
      worker.stream.wait();
    } catch (const dnnl::error& error) {
      ANYORDER_CHECK(false) << "oneDNN failed: " << error.what();
    }
  }

  bool ProbeBFloat16() const {
    BlockKind kind;
    kind.m = kind.n = kind.k = kind.a_stride = kind.b_stride = kind.c_stride = 32;
    kind.dtype = DType::kBFloat16;
    const OneThreadScope one_thread;
    try {
      MakePrimitive(kind, engine_);
      return true;
    } catch (const dnnl::error&) {
      return false;
    }
  }

  dnnl::engine engine_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::map<BlockKind, Primitive> primitives_;  // references stay while others are added
  bool bfloat16_ = false;
};

Gemm::Gemm(int num_threads) : impl_(std::make_unique<Impl>(num_threads)) {}
Gemm::~Gemm() = default;
bool Gemm::SupportsBFloat16() const { return impl_->supports_bfloat16(); }
void Gemm::Run(const GemmArgs& args) { impl_->Run(args); }

}  // namespace anyorder::kernels::cpu
