#include "client/cli/output/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/cli/fake_daemon.h"

namespace convtune::cli::output {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Fields NoteFields(const std::string& name, const std::string& note) {
  return {{"", "NAME", name}, {"", "NOTE", note}};
}

// One column is not in tables.
Fields SizeFields(const std::string& name, Value size, const std::string& note) {
  return {{"", "NAME", name}, {"size", "", 3}, {"", "SIZE", size.Right()}, {"", "NOTE", note}};
}

Table Example() {
  Table table(SizeFields("", "", ""));
  table.Add(SizeFields("a", "1.5 KiB", "short"));
  table.Add(SizeFields("longer", Value("0").In(Color::kRed), "a note of some length"));
  return table;
}

TEST(TableTest, ColumnsAreAligned) {
  EXPECT_EQ(Example().Render(0, false),
            "NAME       SIZE  NOTE\n"
            "a       1.5 KiB  short\n"
            "longer        0  a note of some length\n");
}

TEST(TableTest, AColumnMayHaveNoHeading) {
  Table table({{"", "NAME", ""}, {"", " ", ""}, {"", "NOTE", ""}});
  table.Add({{"", "NAME", "a"}, {"", " ", "1"}, {"", "NOTE", "x"}});
  EXPECT_EQ(table.Render(0, false), "NAME     NOTE\na     1  x\n");
  EXPECT_THAT(table.Render(0, true), Not(HasSubstr("\x1b[1m\x1b")));
}

TEST(TableTest, WhatDoesNotFitIsBelowItsRowAndWhole) {
  EXPECT_EQ(Example().Render(27, false),
            "NAME       SIZE\n"
            "      NOTE\n"
            "a       1.5 KiB\n"
            "      short\n"
            "longer        0\n"
            "      a note of some length\n");
  EXPECT_EQ(Example().Render(12, false),
            "NAME\n"
            "         SIZE\n"
            "      NOTE\n"
            "a\n"
            "      1.5 KiB\n"
            "      short\n"
            "longer\n"
            "            0\n"
            "      a note of some\n"
            "      length\n");
}

TEST(TableTest, AnEmptyTextTakesNoLineBelow) {
  Table table(NoteFields("", ""));
  table.Add(NoteFields("a", ""));
  table.Add(NoteFields("b", "thirty columns of text, or so"));
  EXPECT_EQ(table.Render(30, false),
            "NAME\n"
            "      NOTE\n"
            "a\n"
            "b\n"
            "      thirty columns of text,\n"
            "      or so\n");
}

TEST(TableTest, ATextWithoutSpacesIsBrokenBetweenCodePoints) {
  Table table(NoteFields("", ""));
  table.Add(NoteFields("a", "\xC3\xA4" + std::string(20, 'x')));
  EXPECT_EQ(table.Render(26, false),
            "NAME\n"
            "      NOTE\n"
            "a\n"
            "      \xC3\xA4xxxxxxxxxxxxxxxxxxx\n"
            "      x\n");
}

TEST(TableTest, ColorDoesNotMoveColumns) {
  EXPECT_THAT(Example().Render(0, true), HasSubstr("longer        \x1b[31m0\x1b[0m  a note"));
}

TEST(TableTest, WidthCountsCodePoints) { EXPECT_EQ(DisplayWidth("\xC3\xA4\xE2\x86\x92x"), 3); }

TEST(CsvTest, QuotesWhatNeedsIt) {
  EXPECT_EQ(CsvLine({"a", "b,c", "say \"hi\"", "two\nlines", ""}),
            "a,\"b,c\",\"say \"\"hi\"\"\",\"two\nlines\",\n");
}

class ColorTest : public DaemonTest {};

TEST_F(ColorTest, OnTerminalsOnlyAndNotWithNoColor) {
  const std::vector<std::string> arguments = {"get", ProblemText(8)};
  EXPECT_THAT(Run(arguments, {.terminal = true}).out, HasSubstr("\x1b["));
  EXPECT_THAT(Run(arguments, {.terminal = true, .env = {{"NO_COLOR", "1"}}}).out,
              Not(HasSubstr("\x1b[")));
  EXPECT_THAT(Run(arguments, {.terminal = true, .env = {{"TERM", "dumb"}}}).out,
              Not(HasSubstr("\x1b[")));
  EXPECT_THAT(Run(arguments).out, Not(HasSubstr("\x1b[")));
}

}  // namespace
}  // namespace convtune::cli::output
