#include "core/base/json_members.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace anyorder {
namespace {

struct Members {
  uint64_t count = 7;
  double share = 0.5;
  bool is_new = true;
  std::string name = "a";
  std::vector<std::string> words = {"x"};
};

template <typename Fields, typename Visitor>
void Visit(Fields& fields, Visitor&& visit) {
  visit("count", fields.count);
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
  Members read = {9, 0.25, false, "b", {}};
  Visit(read, reader);
  Visit(read, MemberWriter(*left));
  return reader.bad();
}

TEST(JsonMembersTest, MembersComeBackAndTheFirstBadOneIsNamed) {
  nlohmann::json left;
  EXPECT_EQ(BadOf("{}", &left), "");
  EXPECT_EQ(left, nlohmann::json::parse(
                      R"({"count":7,"share":0.5,"is_new":true,"name":"a","words":["x"]})"));
  for (const auto& [changed, bad, kept] : {std::tuple{R"({"count":-1})", "count", "9"},
                                           {R"({"count":"7"})", "count", "9"},
                                           {R"({"share":null,"name":3})", "share", "0.25"},
                                           {R"({"is_new":1})", "is_new", "false"},
                                           {R"({"name":["a"]})", "name", "\"b\""},
                                           {R"({"words":["x",3]})", "words", "[]"}}) {
    EXPECT_EQ(BadOf(changed, &left), bad) << changed;
    EXPECT_EQ(left[bad].dump(), kept) << changed;
  }
  EXPECT_EQ(BadOf("[]", &left), "(not an object)");
}

}  // namespace
}  // namespace anyorder
