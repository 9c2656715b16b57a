// kernels/cuda/platform/simt.h on the CPU: each name as the emulation does it.

#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/base/dtype.h"
#include "core/base/stream.h"
#include "kernels/cuda/platform/launch_shape.h"
#include "tests/emulated_gpu/block.h"

#define ANYORDER_KERNEL inline
#define ANYORDER_LAUNCH_BOUNDS(threads, blocks)
#define ANYORDER_DEVICE inline
#define ANYORDER_HOST_DEVICE inline
#define ANYORDER_UNROLL
#define ANYORDER_ROLLED

namespace anyorder::kernels::cuda {

inline int Thread() { return emulation::Here().thread; }
inline int Lane() { return emulation::Here().thread % 32; }
inline int BlockThreads() { return emulation::CurrentGrid().threads; }
inline int BlockX() { return emulation::Here().block_x; }
inline int BlockY() { return emulation::Here().block_y; }
inline int BlockZ() { return emulation::Here().block_z; }
inline int GridX() { return emulation::CurrentGrid().x; }
inline unsigned char* SharedMemory() { return emulation::SharedMemoryOfBlock(); }

// A collective's last parameter says where it is called (block.h).
inline void SyncWarp(const emulation::Site& site = emulation::Site::current()) {
  emulation::MeetWarp(emulation::Collective::kSync, {}, site);
}
inline void SyncBlock(const emulation::Site& site = emulation::Site::current()) {
  emulation::MeetBlock(false, site);
}
inline void SyncPair(const emulation::Site& site = emulation::Site::current()) {
  emulation::MeetPair(site);
}
inline bool SyncBlockOr(bool value, const emulation::Site& site = emulation::Site::current()) {
  return emulation::MeetBlock(value, site);
}
template <typename T>
T ShuffleXor(T value, int mask, const emulation::Site& site = emulation::Site::current()) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  emulation::ShuffleIn in{0, mask};
  std::memcpy(&in.bits, &value, sizeof value);
  uint64_t bits = 0;
  emulation::MeetWarp(emulation::Collective::kShuffleXor, {&in, &bits}, site);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

[[noreturn]] inline void Trap(const char* what) { emulation::Fail(what); }

inline void ClaimAlone(const void* place) { emulation::Claim(place); }

inline void LoadMatrices(uint32_t (&fragment)[4], const void* row,
                         const emulation::Site& site = emulation::Site::current()) {
  emulation::CheckShared(row, "LoadMatrices at");
  emulation::MeetWarp(emulation::Collective::kLoadMatrices, {row, fragment}, site);
}
inline void LoadMatricesTransposed(uint32_t (&fragment)[4], const void* row,
                                   const emulation::Site& site = emulation::Site::current()) {
  emulation::CheckShared(row, "LoadMatricesTransposed at");
  emulation::MeetWarp(emulation::Collective::kLoadMatricesTransposed, {row, fragment}, site);
}
inline void MultiplyAccumulate(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                               const emulation::Site& site = emulation::Site::current()) {
  const emulation::MultiplyIn in{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  emulation::MeetWarp(emulation::Collective::kMultiplyAccumulate, {&in, c}, site);
}

inline void CopyAsync16(void* shared, const void* global, bool valid) {
  emulation::CopyLater(shared, global, valid);
}
inline void CommitCopies() { emulation::CommitCopyGroup(); }
template <int kNewest>
void WaitForCopies() {
  emulation::WaitForCopyGroups(kNewest);
}

inline float Exp2(float x) { return std::exp2(x); }
// Of every NaN the instruction makes the same one.
inline uint32_t RoundToBf16(float x) { return std::isnan(x) ? 0x7fffu : BFloat16(x).bits; }
inline uint32_t PackBf16(float low, float high) {
  return RoundToBf16(low) | (RoundToBf16(high) << 16);
}
inline float LowBf16(uint32_t packed) { return std::bit_cast<float>(packed << 16); }
inline float HighBf16(uint32_t packed) { return std::bit_cast<float>(packed & 0xffff0000u); }

inline Words4 LoadWords(const void* global) {
  emulation::CheckAligned(global, 16, "LoadWords");
  Words4 words;
  std::memcpy(&words, global, sizeof words);
  return words;
}
inline void StoreWords(void* global, const Words4& words) {
  emulation::CheckAligned(global, 16, "StoreWords");
  std::memcpy(global, &words, sizeof words);
}
inline Words2 LoadTwoWords(const void* global) {
  emulation::CheckAligned(global, 8, "LoadTwoWords");
  Words2 words;
  std::memcpy(&words, global, sizeof words);
  return words;
}
inline float AsFloat(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t AsBits(float value) { return std::bit_cast<uint32_t>(value); }

// Gives the run of the whole grid to `stream` as one piece of work (runtime.h), or runs it at once
// if the stream is null.
template <typename Params>
void StartKernel(void (*kernel)(Params), const LaunchShape& shape, const Params& params,
                 StreamView stream) {
  const void* const function = reinterpret_cast<const void*>(kernel);
  const emulation::Grid grid{static_cast<int>(shape.blocks_x), shape.blocks_y, shape.blocks_z,
                             shape.threads, shape.shared_bytes};
  emulation::EnqueueKernel(stream, function,
                           [=] { emulation::Run(function, grid, [&] { kernel(params); }); });
}

}  // namespace anyorder::kernels::cuda
