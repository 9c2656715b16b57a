// WriteInOrder (methods.h): groups of blanks in an order that is fixed first.

#include <algorithm>
#include <memory>

#include "core/base/status.h"
#include "core/generate/any_order/methods.h"
#include "core/generate/any_order/open_network.h"
#include "core/generate/any_order/ordered_text.h"

namespace anyorder {
namespace {

LanePass NextGroup(const OrderedText& text, int64_t lane, SlotNetwork& network) {
  LanePass pass;
  if (text.is_done()) return pass;
  network.Keep(lane, text.NumFinal(network.kept(lane)));
  text.AddKnown(network.kept(lane), text.known(), {}, &pass);
  text.AskAhead(text.GroupEnd(), /*newest_is_kept=*/true, &pass);
  return pass;
}

}  // namespace

absl::StatusOr<std::vector<WrittenText>> WriteInOrder(const WritingTask& task) {
  std::vector<OrderedText> texts;
  for (const Canvas& canvas : task.canvases)
    texts.emplace_back(task.model.form, canvas, task.options);
  const int32_t end_token = task.model.form.end_token;
  const int64_t length = LongestOf(task.canvases);
  ASSIGN_OR_RETURN(const std::unique_ptr<SlotNetwork> network,
                   OpenNetwork(task.model, {.lanes = static_cast<int64_t>(texts.size()),
                                            .key_slots = length,
                                            .span = length,
                                            .cached = !task.options.recompute}));
  std::vector<double> logits;
  while (!std::ranges::all_of(texts, &OrderedText::is_done)) {
    std::vector<LanePass> passes;
    for (size_t n = 0; n < texts.size(); ++n)
      passes.push_back(NextGroup(texts[n], static_cast<int64_t>(n), *network));
    RETURN_IF_ERROR(network->Run(passes));
    for (size_t n = 0; n < texts.size(); ++n) {
      OrderedText& text = texts[n];
      if (text.is_done()) continue;
      text.text().CountPass();
      const int64_t begin = text.known();
      const int64_t end = text.GroupEnd();
      for (int64_t i = begin; i < end; ++i) {
        RETURN_IF_ERROR(network->ReadRow(static_cast<int64_t>(n), i - begin, &logits));
        const TokenDistribution drawn = text.text().Drawn(text.position(i), logits);
        const int32_t token = text.text().DrawToken(drawn, begin, text.position(i));
        const double probability = text.text().Probability(text.position(i), logits, token);
        task.listener(static_cast<int64_t>(n),
                      text.Write(token, LogProbability(logits, token), probability));
      }
      if (task.options.stop_at_end) text.text().StopAtEnd(end_token);
      if (!task.check(static_cast<int64_t>(n), text.is_done())) text.text().Stop(end_token);
    }
  }
  std::vector<WrittenText> written;
  for (OrderedText& text : texts) written.push_back(text.text().Finish());
  return written;
}

}  // namespace anyorder
