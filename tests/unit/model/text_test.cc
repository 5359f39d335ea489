#include "proto/model/text.h"

#include <gtest/gtest.h>

namespace convtune {
namespace {

TEST(TextTest, KnowsUtf8) {
  EXPECT_TRUE(IsValidUtf8("caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"));
  EXPECT_TRUE(IsValidUtf8(""));
  for (const char* bad :
       {"\xC3", "\xFF", "\xC0\x80", "\xC1\xBF", "\xED\xA0\x80", "\xE2\x82", "\xF0\x80\x80\x80",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE0\x80\x80", "\x80", "\xC3("}) {
    EXPECT_FALSE(IsValidUtf8(bad)) << Quote(bad);
  }
}

TEST(TextTest, TabsAreNoControlCharacters) {
  EXPECT_FALSE(HasControlCharacter("a\tb"));
  EXPECT_TRUE(HasControlCharacter("a\nb"));
  EXPECT_TRUE(HasControlCharacter(std::string_view("a\0b", 3)));
  EXPECT_TRUE(HasControlCharacter("\x7F"));
}

TEST(TextTest, TheNameOfANodeIsShortText) {
  EXPECT_EQ(CheckNodeName("rack 2"), "");
  EXPECT_EQ(CheckNodeName(std::string(256, 'n')), "");
  for (const std::string& bad :
       {std::string(), std::string(257, 'n'), std::string("a\nb"), std::string("a\tb"),
        std::string("\xFF"), std::string("n1 "), std::string(" n1")}) {
    EXPECT_EQ(
        CheckNodeName(bad),
        "must be 1 to 256 bytes of UTF-8 without control characters and without a space at an "
        "end");
  }
}

TEST(TextTest, CutUtf8EndsBehindACharacter) {
  EXPECT_EQ(CutUtf8("a\u00d7b", 4), "a\u00d7b");
  EXPECT_EQ(CutUtf8("a\u00d7b", 3), "a\u00d7");
  EXPECT_EQ(CutUtf8("a\u00d7b", 2), "a");
  EXPECT_EQ(CutUtf8("\u00d7", 1), "");
  EXPECT_EQ(CutUtf8("", 0), "");
}

TEST(TextTest, ExcerptsAreShortAndPrintable) {
  EXPECT_EQ(Excerpt("a\n\xFF"), "a\\n\\xff");
  EXPECT_EQ(Excerpt("1\u00d764"), "1\u00d764");
  // No half of a character, which would be no text any more.
  EXPECT_EQ(Excerpt(std::string(39, 'a') + "\u00d7"), std::string(39, 'a') + "...");
  EXPECT_EQ(Excerpt(std::string(100, 'x')), std::string(40, 'x') + "...");
}

TEST(TextTest, ReadsPlainDecimalsOnly) {
  int64_t value = 0;
  EXPECT_TRUE(ReadInt64("-9223372036854775808", &value).ok());
  EXPECT_EQ(value, INT64_MIN);
  EXPECT_TRUE(ReadInt64("007", &value).ok());
  EXPECT_EQ(value, 7);
  for (const char* bad : {"", "-", "+1", " 1", "1 ", "1e3", "0x10", "--1"}) {
    EXPECT_EQ(ReadInt64(bad, &value).message(), Quote(bad) + " is not a whole number");
  }
  EXPECT_EQ(ReadInt64("9223372036854775808", &value).message(),
            "\"9223372036854775808\" does not fit into 64 bits");
}

}  // namespace
}  // namespace convtune
