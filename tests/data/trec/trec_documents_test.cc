// Collections written here in both forms.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "data/trec/trec_files.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::data {
namespace {

using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class DocumentFilesTest : public ::testing::Test {
 protected:
  absl::Status Read(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return ReadTrecDocuments(path_, {"a-1", "b-2"}, &documents_);
  }
  void ExpectFault(const std::string& bytes, const std::string& message) {
    documents_.clear();
    EXPECT_THAT(Read(bytes), Fails(absl::IsDataLoss, path_ + message)) << bytes;
  }

  const TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/file";
  TrecDocuments documents_;
};

TEST_F(DocumentFilesTest, JsonLines) {
  ASSERT_TRUE(Read("\n{\"id\": \"a-1\", \"text\": \"one\\ntwo \\u0000\", \"url\": 3}\r\n"
                   "{\"id\": \"c-3\", \"text\": \"\"}\n{\"text\": \"\", \"id\": \"b-2\"}")
                  .ok());
  EXPECT_THAT(documents_, UnorderedElementsAre(Pair("a-1", "one\ntwo  "), Pair("b-2", "")));
}

TEST_F(DocumentFilesTest, TrecText) {
  ASSERT_TRUE(Read("<DOC>\n<DOCNO> a-1 </DOCNO>\n<HEADLINE>no</HEADLINE>\n<TEXT>x<P>y &lt;b&amp;gt;"
                   "\xFF</TEXT>\n<TEXT>z < w > v</TEXT></DOC>\n\n<DOC><DOCNO>c</DOCNO></DOC>\n"
                   "<DOC><DOCNO>b-2</DOCNO></DOC>\n")
                  .ok());
  EXPECT_THAT(documents_, UnorderedElementsAre(Pair("a-1", "x y <b&gt;\xEF\xBF\xBD z < w > v "),
                                               Pair("b-2", "")));
}

TEST_F(DocumentFilesTest, FaultsAreNamedByLine) {
  const std::string one = "{\"id\": \"a-1\", \"text\": \"x\"}\n";
  ExpectFault(one + "{\"id\": \"b-2\"}\n", ":2: not a JSON object with the strings");
  ExpectFault(one + "{\"id\": 1, \"text\": \"x\"}\n", ":2: not a JSON object");
  ExpectFault(one + "\n" + one, ":3: document a-1 was read before");
  ExpectFault(one + "{\"id\": \"b-2\", \"text\": \"\xFF\"}\n",
              ":2: not valid JSON (column 24: invalid string: ill");
  ExpectFault("\n\n", ": the file holds no document");
  ExpectFault("<DOC>\n<TEXT>x</TEXT>\n</DOC>\n", ":3: the record that ends here has no <DOCNO>");
  ExpectFault("<DOC><DOCNO>a-1</DOCNO></DOC>\nwords\n", ":2: the line does not begin with <DOC>");
  ExpectFault("<DOC><DOCNO>a-1</DOCNO>\n", ": the last <DOC> has no </DOC>");
  EXPECT_TRUE(absl::IsNotFound(ReadTrecDocuments(path_ + "x", {}, &documents_)));
  // Once, it was collected until memory ran out.
  EXPECT_THAT(ReadTrecDocuments("/dev/zero", {}, &documents_),
              Fails(absl::IsDataLoss, "/dev/zero:1: a line of 67108864 bytes"));
}

}  // namespace
}  // namespace anyorder::data
