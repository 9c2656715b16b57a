// Values that can be computed by hand; tests/parity/metrics_parity.py compares random and nasty
// ones with the official implementations.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/metrics/label_scores.h"
#include "core/metrics/ranking.h"
#include "core/metrics/squad.h"

namespace anyorder::metrics {
namespace {

using Classes = std::vector<int32_t>;
using Numbers = std::vector<double>;

TEST(ClassificationTest, CountsByHand) {
  const Classes gold = {1, 1, 1, 0, 0, 1};
  const Classes predicted = {1, 0, 1, 0, 1, 1};  // TP 3, FN 1, FP 1, TN 1
  EXPECT_EQ(Accuracy(gold, predicted), 4.0 / 6);
  EXPECT_EQ(BinaryF1(gold, predicted, 1), 6.0 / 8);
  EXPECT_EQ(BinaryF1(gold, predicted, 0), 2.0 / 4);
  EXPECT_EQ(MacroF1(gold, predicted), (0.75 + 0.5) / 2);
  EXPECT_EQ(MatthewsCorrelation(gold, predicted), (3.0 * 1 - 1 * 1) / std::sqrt(4.0 * 4 * 2 * 2));
}

TEST(ClassificationTest, OneClassHasNoCorrelationAndNoF1OfTheOther) {
  const Classes ones = {1, 1, 1};
  const Classes zeros = {0, 0, 0};
  const Classes mixed = {0, 1, 0};
  EXPECT_EQ(MatthewsCorrelation(ones, mixed), 0);
  EXPECT_EQ(MatthewsCorrelation(mixed, ones), 0);
  EXPECT_EQ(BinaryF1(zeros, zeros, 1), 0);
  EXPECT_EQ(MacroF1(zeros, zeros), 1);
  EXPECT_EQ(MacroF1(zeros, ones), 0);
}

TEST(CorrelationTest, TiesHaveAverageRanks) {
  EXPECT_EQ(AverageRanks(Numbers{3, 1, 3, 2, 3}), (Numbers{4, 1, 4, 2, 4}));
  EXPECT_EQ(SpearmanCorrelation(Numbers{1, 2, 3}, Numbers{1, 20, 21}), 1);
  EXPECT_EQ(SpearmanCorrelation(Numbers{1, 2, 2}, Numbers{5, 4, 4}), -1);
  EXPECT_EQ(PearsonCorrelation(Numbers{1, 2, 3, 4}, Numbers{1, 3, 2, 4}), 0.8);
  EXPECT_EQ(PearsonCorrelation(Numbers{1, 2}, Numbers{7, 6}), -1);
}

TEST(CorrelationTest, IsUndefinedWhereNothingVaries) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Numbers& flat : {Numbers{0.1, 0.1, 0.1}, Numbers{1, infinity, 2}}) {
    EXPECT_TRUE(std::isnan(PearsonCorrelation(flat, Numbers{1, 2, 3})));
    EXPECT_TRUE(std::isnan(SpearmanCorrelation(Numbers{1, 2, 3}, flat)));
  }
  EXPECT_TRUE(std::isnan(PearsonCorrelation(Numbers{1}, Numbers{2})));
  EXPECT_TRUE(std::isnan(PearsonCorrelation(Numbers{}, Numbers{})));
}

TEST(RankingTest, TiesAreOrderedByDocumentBackwards) {
  const std::vector<std::string> ids = {"b", "a", "c", "d"};
  EXPECT_EQ(RankingOrder(Numbers{1, 1, 1, 2}, ids), (std::vector<size_t>{3, 2, 0, 1}));
}

TEST(RankingTest, ScoresByHand) {
  const Classes ranked = {0, 3, -2, 1};
  const Classes judged = {1, 3, 2, 0, -2};
  const double exponential = (7 / std::log(3.0) + 1 / std::log(5.0)) /
                             (7 / std::log(2.0) + 3 / std::log(3.0) + 1 / std::log(4.0));
  const double linear = (3 / std::log2(3.0) + 1 / std::log2(5.0)) /
                        (3 / std::log2(2.0) + 2 / std::log2(3.0) + 1 / std::log2(4.0));
  EXPECT_EQ(Ndcg(ranked, judged, 20, NdcgGain::kExponential), exponential);
  EXPECT_EQ(Ndcg(ranked, judged, 20, NdcgGain::kLinear), linear);
  EXPECT_EQ(Ndcg(ranked, judged, 1, NdcgGain::kLinear), 0);
  EXPECT_EQ(Ndcg(ranked, Classes{0, -2}, 20, NdcgGain::kLinear), 0);
  // The second document stops 7/16 of the readers, the fourth 1/16 of the others.
  EXPECT_EQ(ExpectedReciprocalRank(ranked, 20, 4), 7.0 / 16 / 2 + 1.0 / 16 * (9.0 / 16) / 4);
  EXPECT_EQ(ExpectedReciprocalRank(ranked, 3, 4), 7.0 / 16 / 2);
  EXPECT_EQ(AveragePrecision(ranked, 3), (1.0 / 2 + 2.0 / 4) / 3);
  EXPECT_EQ(AveragePrecision(ranked, 0), 0);
}

TEST(SquadTest, AnswersAreNormalized) {
  EXPECT_EQ(NormalizeAnswer("  The  Cat's\tan-swer, (a) \u00A0An apple! "), "cats answer apple");
  // The article is bounded by what is no letter, and punctuation is gone before it is looked for.
  EXPECT_EQ(NormalizeAnswer("a‘the’b th-e A.N."), "‘ ’b");
  EXPECT_EQ(NormalizeAnswer("THE"), "");
  EXPECT_EQ(NormalizeAnswer("théâtre ÀN Σ"), "théâtre àn σ");
}

TEST(SquadTest, F1IsOfWordsAsBags) {
  const std::vector<std::string> answers = {"x y", "x x y"};
  const SquadScore score = ScoreAnswer("x x z", answers, SquadVersion::k2_0);
  EXPECT_EQ(score.exact, 0);
  EXPECT_EQ(score.f1, 2.0 / 3);  // two of three both ways, of the second answer
  EXPECT_EQ(ScoreAnswer("y, X", answers, SquadVersion::k1_1).f1, 1);
}

// The versions differ in answers that are articles and punctuation alone.
TEST(SquadTest, EmptyAnswersAreScoredAsEachVersionDoes) {
  const std::vector<std::string> article = {"The"};
  EXPECT_EQ(ScoreAnswer("a", article, SquadVersion::k1_1).exact, 1);
  EXPECT_EQ(ScoreAnswer("a", article, SquadVersion::k1_1).f1, 0);
  EXPECT_EQ(ScoreAnswer("a", article, SquadVersion::k2_0).f1, 1);
  EXPECT_EQ(ScoreAnswer("", {}, SquadVersion::k2_0).f1, 1);
  EXPECT_EQ(ScoreAnswer("x", {}, SquadVersion::k2_0).f1, 0);
  EXPECT_EQ(ScoreAnswer("x", std::vector<std::string>{"...", "x"}, SquadVersion::k2_0).exact, 1);
}

TEST(SquadTest, QuestionsWithAndWithoutAnswerAreReportedApart) {
  const std::vector<SquadQuestion> questions = {
      {{"red"}, "red", -2}, {{}, "blue", 3}, {{"green"}, "yellow", 1}, {{}, "", 2}};
  const SquadReport raw = ScoreSquad(questions, SquadVersion::k2_0, std::nullopt);
  EXPECT_EQ(raw.all.exact, 50);
  EXPECT_EQ(raw.has_answer->exact, 50);
  EXPECT_EQ(raw.no_answer->exact, 50);
  EXPECT_EQ(raw.no_answer->total, 2u);
  // Answering the first question alone gives three of four.
  EXPECT_EQ(raw.best_exact.best, 75);
  EXPECT_EQ(raw.best_exact.threshold, -2);
  const SquadReport cut = ScoreSquad(questions, SquadVersion::k2_0, 2.5);
  EXPECT_EQ(cut.all.exact, 75);
  EXPECT_EQ(cut.no_answer->f1, 100);
  EXPECT_EQ(cut.best_f1.best, 75);
  EXPECT_FALSE(ScoreSquad({questions.data(), 1}, SquadVersion::k1_1, std::nullopt).no_answer);
}

}  // namespace
}  // namespace anyorder::metrics
