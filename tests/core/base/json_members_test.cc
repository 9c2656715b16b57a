#include "core/base/json_members.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace anyorder {
namespace {

struct Members {
  uint64_t count = 7;
  int32_t rank = -3;
  double share = 0.5;
  bool is_new = true;
  std::string name = "a";
  std::vector<std::string> words = {"x"};
};

template <typename Fields, typename Visitor>
void Visit(Fields& fields, Visitor&& visit) {
  visit("count", fields.count);
  visit("rank", fields.rank);
  visit("share", fields.share);
  visit("is_new", fields.is_new);
  visit("name", fields.name);
  visit("words", fields.words);
}

// What a reader says of the written members with `changed` among them, and what it leaves.
std::string BadOf(const char* changed, nlohmann::json* left) {
  nlohmann::json json;
  const Members members;
  Visit(members, MemberWriter(json));
  json.merge_patch(nlohmann::json::parse(changed));
  MemberReader reader(json);
  Members read = {9, 5, 0.25, false, "b", {}};
  Visit(read, reader);
  Visit(read, MemberWriter(*left));
  return reader.bad();
}

TEST(JsonMembersTest, MembersComeBackAndTheFirstBadOneIsNamed) {
  nlohmann::json left;
  EXPECT_EQ(BadOf("{}", &left), "");
  EXPECT_EQ(left,
            nlohmann::json::parse(
                R"({"count":7,"rank":-3,"share":0.5,"is_new":true,"name":"a","words":["x"]})"));
  for (const auto& [changed, bad, kept] : {std::tuple{R"({"count":-1})", "count", "9"},
                                           {R"({"count":"7"})", "count", "9"},
                                           {R"({"rank":1.5})", "rank", "5"},
                                           {R"({"rank":3000000000})", "rank", "5"},
                                           {R"({"share":null,"name":3})", "share", "0.25"},
                                           {R"({"is_new":1})", "is_new", "false"},
                                           {R"({"name":["a"]})", "name", "\"b\""},
                                           {R"({"words":["x",3]})", "words", "[]"}}) {
    EXPECT_EQ(BadOf(changed, &left), bad) << changed;
    EXPECT_EQ(left[bad].dump(), kept) << changed;
  }
  EXPECT_EQ(BadOf("[]", &left), "(not an object)");
}

TEST(JsonMembersTest, FaultsHaveTheirPlaceAndReason) {
  for (const auto& [text, why] :
       {std::pair{"[1]", "not a JSON object"},
        {"", "not valid JSON (column 1: unexpected end of input; expected '[', '{', or a literal)"},
        {R"({"a": tru})", "not valid JSON (column 10: invalid literal)"},
        {R"({"a": 5 "bc": 3})",
         "not valid JSON (column 9: unexpected string literal; expected '}')"},
        {R"({"a":1}{"b":2})", "not valid JSON (column 8: unexpected '{'; expected end of input)"},
        {R"({"a": 1e400})", "not valid JSON (column 11: number overflow)"},
        // Columns are characters.
        {"{\"\xC3\xBC\": x}", "not valid JSON (column 7: invalid literal)"},
        {"{\"\xFF\": 1}", "not valid JSON (column 3: invalid string: ill-formed UTF-8 byte)"},
        {"{\n \"a\": 1,\n}",
         "not valid JSON (line 3, column 1: unexpected '}'; expected string literal)"}}) {
    EXPECT_EQ(WhyNoJsonObject(std::string_view(text)), why) << text;
  }
  EXPECT_EQ(DumpJson(nlohmann::json("a\xFF")), "\"a\xEF\xBF\xBD\"");
}

std::string Repeated(int64_t times, std::string_view text) {
  std::string all;
  for (int64_t i = 0; i < times; ++i) all += text;
  return all;
}

std::string ObjectOf(int64_t members) {
  std::string text = "{\"a\":0";
  for (int64_t i = 1; i < members; ++i) text += ",\"" + std::to_string(i) + "\":[]";
  return text + "}";
}

// Once, a text of either kind ended the program, or kept it busy for minutes.
TEST(JsonMembersTest, DeepAndWideTextsAreRefusedBeforeTheyAreBuilt) {
  const int64_t deepest = kMaxJsonDepth;
  const auto nested = [](int64_t levels) {
    return "{\"a\":" + Repeated(levels - 1, "[") + Repeated(levels - 1, "]") + "}";
  };
  const std::string brackets = Repeated(100'000, "[{");
  for (const auto& [text, is_good, is_good_in_order, why] :
       {std::tuple{nested(deepest), true, true, "not a JSON object"},
        {nested(deepest + 1), false, false, "JSON that is nested deeper than 64 levels"},
        {nested(1'000'000), false, false, "JSON that is nested deeper than 64 levels"},
        {Repeated(1'000'000, "{\"a\":"), false, false, "JSON that is nested deeper"},
        {"{\"a\":\"\\\"" + brackets + "\"}", true, true, "not a JSON object"},
        {"{\"" + brackets + "\\\\\":{}}", true, true, "not a JSON object"},
        {"[" + Repeated(50'000, "[{}],") + "0]", true, true, "not a JSON object"},
        {ObjectOf(20'000), true, true, "not a JSON object"},
        {ObjectOf(46'400), true, false, "JSON with more than 46,000 members in an object, or"},
        {"[" + ObjectOf(33'000) + "," + ObjectOf(33'000) + "]", true, false, "JSON with more"},
        {ObjectOf(300'000), true, false, "JSON with more than 46,000 members"},
        // Damaged before it is deep, and cut off.
        {"]" + brackets, false, false, "JSON that is nested deeper"},
        {nested(deepest).substr(0, 40), false, false, "not valid JSON (column 41: unexpected end"},
        {"{\"a", false, false, "not valid JSON (column 4"},
        {"{\"a\\", false, false, "not valid JSON (column 5"}}) {
    EXPECT_EQ(!TryParseJson(text).is_discarded(), is_good) << text.substr(0, 40);
    EXPECT_EQ(!TryParseJson<nlohmann::ordered_json>(text).is_discarded(), is_good_in_order)
        << text.substr(0, 40);
    EXPECT_EQ(WhyNoJsonObject(std::string_view(text)).find(why), 0u) << why;
  }
  EXPECT_EQ(ParseJsonObject(nested(deepest + 1), "; fetch it again").status().message(),
            "JSON that is nested deeper than 64 levels; fetch it again");
}

}  // namespace
}  // namespace anyorder
