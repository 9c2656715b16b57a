#include "core/objective/canvas_form.h"

#include "core/base/check.h"

namespace anyorder {

Slot CanvasForm::Token(int32_t token, int64_t pos, int64_t rank, int64_t next) const {
  Slot slot = RankedSlot(token, pos, family == CanvasFamily::kMasked ? 0 : rank);
  slot.next = static_cast<int32_t>(next);
  return slot;
}

Slot CanvasForm::Blank(int64_t pos, int64_t rank) const {
  switch (family) {
    case CanvasFamily::kMasked: return RankedSlot(mask_token, pos, 0);
    case CanvasFamily::kBlocks: return UnfinishedToken(mask_token, pos);
    case CanvasFamily::kTwoStream:
      return {.pos = static_cast<int32_t>(pos), .lim = static_cast<int32_t>(rank - 1)};
    case CanvasFamily::kEso: return RankedSlot(mask_token, pos, rank);
    case CanvasFamily::kPairs:
    case CanvasFamily::kCausal: break;
  }
  ANYORDER_CHECK(false) << "a blank has no slot in a network whose tokens predict the next one";
  return {};
}

Slot CanvasForm::UnfinishedToken(int32_t token, int64_t pos) const {
  ANYORDER_CHECK(family == CanvasFamily::kBlocks) << "only block diffusion has a noised copy";
  return GroupSlot(token, pos, BlockOf(pos) - 1, BlockOf(pos));
}

Slot CanvasForm::LoneSlot(int32_t token, int64_t pos, int64_t rank, int64_t group,
                          int64_t next) const {
  Slot slot = GroupSlot(token, pos, rank - 1, group);
  slot.next = static_cast<int32_t>(next);
  return slot;
}

}  // namespace anyorder
