// Methods whose order is fixed first, against the same written again for one text at a time.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/generate/any_order/methods.h"
#include "tests/core/generate/any_order/canvas_cases.h"
#include "tests/core/generate/any_order/plain_pass.h"

namespace anyorder::testing {
namespace {

RandomStream OrderDraws(const Canvas& canvas, const WriteOptions& options, uint64_t number) {
  return {options.draw.seed, RandomPurpose::kWritingOrder, number, canvas.stream};
}

PlainOrder OrderPlain(const CanvasForm& form, const Canvas& canvas, const WriteOptions& options) {
  std::vector<int64_t> given = GivenOf(canvas.tokens), blanks = BlanksOf(canvas.tokens);
  const bool is_eso = form.family == CanvasFamily::kEso;
  if (is_eso) ShufflePlain(OrderDraws(canvas, options, 1), given);
  if (is_eso || options.random_order) ShufflePlain(OrderDraws(canvas, options, 0), blanks);
  PlainOrder order{.positions = given, .num_given = given.size()};
  size_t done = 0;
  if (is_eso) {
    const auto steps = static_cast<double>(
        options.steps > 0 ? options.steps
                          : static_cast<int64_t>(std::max<size_t>(1, blanks.size())));
    RandomStream random = OrderDraws(canvas, options, 2);
    for (double step = 0; step < steps; ++step) {
      const double before = form.eso.diffusion_share * step / steps;
      const double after = form.eso.diffusion_share * (step + 1) / steps;
      const size_t left = blanks.size() - done;
      size_t count = 0;
      for (size_t i = 0; i < left; ++i)
        if (random.Uniform() < (after - before) / (1 - before)) ++count;
      done += count;
      if (count > 0) order.group_ends.push_back(given.size() + done);
    }
    std::sort(blanks.begin() + static_cast<int64_t>(done), blanks.end());
  }
  order.diffusion_end = given.size() + done;
  order.positions.insert(order.positions.end(), blanks.begin(), blanks.end());
  const auto group =
      static_cast<size_t>(options.method == WriteMethod::kGroups ? options.group_len : 1);
  for (size_t end = order.diffusion_end; end < order.positions.size();) {
    end = std::min(end + group, order.positions.size());
    order.group_ends.push_back(end);
  }
  return order;
}

WrittenText WriteInOrderPlain(const CanvasModel& model, const Canvas& canvas,
                              const WriteOptions& options) {
  PlainPass pass(model);
  const PlainOrder order = OrderPlain(model.form, canvas, options);
  WrittenText result{.tokens = canvas.tokens};
  size_t known = order.num_given;
  for (const size_t end : order.group_ends) {
    ++result.passes;
    const LogitRows rows = ReadGroup(pass, model.form, order, result.tokens, known, end);
    for (size_t i = known; i < end; ++i) {
      const int64_t position = order.positions[i];
      const std::vector<bool> banned = BannedAt(model, canvas, options, position);
      const std::vector<double>& logits = rows[i - known];
      const uint64_t place = (static_cast<uint64_t>(known) << 32) + static_cast<uint64_t>(position);
      RandomStream draws(options.draw.seed, RandomPurpose::kGeneration, place, canvas.stream);
      const int32_t token = PlainChoice(options.draw.cuts, logits, banned).Draw(draws.Uniform());
      result.tokens[position] = token;
      const double log_prob = LogOfSoftmax(logits, token);
      result.log_prob += log_prob;
      result.written.push_back({result.passes, position, token, log_prob,
                                PlainChoice(TokenCuts(), logits, banned).Of(token)});
    }
    known = end;
    if (!options.stop_at_end) continue;
    if (EndText(canvas, model.form.end_token, result.tokens)) break;
  }
  return result;
}

class InOrderTest : public ::testing::TestWithParam<CanvasModel> {};

TEST_P(InOrderTest, EqualsTheMethodWrittenAgain) {
  using enum WriteMethod;
  ExpectPlainMethods(GetParam(), {kEso, kGroups, kSequential}, 120, 54,
                     [](const Canvas& canvas, const WriteOptions& options) {
                       return WriteInOrderPlain(GetParam(), canvas, options);
                     });
}

INSTANTIATE_TEST_SUITE_P(Models, InOrderTest, ::testing::ValuesIn(OrderedModels()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace anyorder::testing
