// Ticks, labels, markup and figures, each against values worked by hand.
#include "sim/figure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/axis.h"
#include "sim/markup.h"
#include "sim/page.h"
#include "tests/support/well_formed.h"

namespace kneepoint::sim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing_support::not_well_formed;

std::vector<std::string> labels(const std::vector<Tick>& ticks) {
  std::vector<std::string> texts;
  for (const Tick& tick : ticks) {
    texts.push_back(tick.label);
  }
  return texts;
}

// 0 .. 23.7 in at most 6 ticks: a step of at least 23.7 / 5 = 4.74, so 5.
TEST(LinearTicks, TakeTheSmallestRoundStepThatIsLargeEnough) {
  EXPECT_THAT(labels(linear_ticks({0, 23.7}, 6)), ElementsAre("0", "5", "10", "15", "20"));
  // 5 / 5 = 1 exactly, and both ends have a tick.
  EXPECT_THAT(labels(linear_ticks({0, 5}, 6)), ElementsAre("0", "1", "2", "3", "4", "5"));
  // At least 11000 / 5 = 2200: 5000.
  EXPECT_THAT(labels(linear_ticks({1000, 12000}, 6)), ElementsAre("5,000", "10,000"));
  EXPECT_THAT(labels(linear_ticks({-0.25, 0.25}, 6)), ElementsAre("-0.2", "-0.1", "0.0", "0.1", "0.2"));
}

// 3 * 0.1 is 0.30000000000000004 in doubles; the tick is 3 / 10.
TEST(LinearTicks, AreTheDoublesNearestToTheirLabels) {
  const std::vector<Tick> ticks = linear_ticks({0, 0.5}, 6);
  ASSERT_EQ(ticks.size(), 6U);
  EXPECT_EQ(ticks[3].value, 0.3);
  EXPECT_EQ(ticks[3].label, "0.3");
}

TEST(LinearTicks, ARangeWithoutWidthIsWidened) {
  EXPECT_THAT(labels(linear_ticks({0, 0}, 3)), ElementsAre("0.0", "0.5", "1.0"));
  EXPECT_THAT(labels(linear_ticks({8, 8}, 3)), ElementsAre("5", "10"));
}

// Values between: 1, 2, 5 of each decade; else 1, 3; else powers of ten, then each second one.
TEST(LogTicks, AreAsFineAsTheRoomAllows) {
  EXPECT_THAT(labels(log_ticks({37, 620}, 6)), ElementsAre("50", "100", "200", "500"));
  EXPECT_THAT(labels(log_ticks({1, 2000}, 8)), ElementsAre("1", "3", "10", "30", "100", "300", "1,000"));
  EXPECT_THAT(labels(log_ticks({0.5, 2e6}, 7)),
              ElementsAre("1", "10", "100", "1,000", "10,000", "100,000", "1,000,000"));
  EXPECT_THAT(labels(log_ticks({0.5, 2e6}, 6)), ElementsAre("1", "100", "10,000", "1,000,000"));
  EXPECT_THAT(labels(log_ticks({0.002, 0.03}, 6)), ElementsAre("0.002", "0.005", "0.01", "0.02"));
}

// Between 21 and 39 there is no 1, 2 or 5 but 20 and 50: linear ticks, 18 / 5 = 3.6, so 5.
TEST(LogTicks, WithinAFewOfARangeAreLinear) {
  EXPECT_THAT(labels(log_ticks({21, 39}, 6)), ElementsAre("25", "30", "35"));
}

TEST(RoundedOut, EndsAtSteps) {
  EXPECT_EQ(rounded_out({0.3, 23.7}, 6).low, 0);
  EXPECT_EQ(rounded_out({0.3, 23.7}, 6).high, 25);
  EXPECT_EQ(rounded_out({0, 20}, 5).high, 20);  // On a step already.
}

// 10 to 1000 over 200 px: 100 is half the way in logarithms, 1000 * 10 = 100^2.
TEST(ScaleTest, PlacesAndKeepsInside) {
  const Scale log({10, 1000}, true, 50, 250);
  EXPECT_DOUBLE_EQ(log.px(100), 150);
  EXPECT_DOUBLE_EQ(log.px(1), 50);
  EXPECT_DOUBLE_EQ(log.px(1e9), 250);
  const Scale upwards({0, 4}, false, 100, 0);
  EXPECT_DOUBLE_EQ(upwards.px(1), 75);
}

// Widths 40. Lines at 10 and 60 are 50 apart, enough for 40 and the gap of 8. One at 80 would stand in the
// label of 60 (60 .. 100), so it goes below; the one at 95 must stay below both. At 145 there is room at the
// top again (135 + 8 is less). The last is moved in to 160 and meets the label before (145 .. 185), so it
// goes below that one only.
TEST(PlaceLabels, NeitherMeetNorAreRunThrough) {
  const std::vector<PlacedLabel> placed =
      place_labels({10, 60, 80, 95, 145, 195}, std::vector<double>(6, 40), {0, 200});
  std::vector<int> rows;
  std::vector<double> lefts;
  for (const PlacedLabel& label : placed) {
    rows.push_back(label.row);
    lefts.push_back(label.left);
  }
  EXPECT_THAT(rows, ElementsAre(0, 0, 1, 2, 0, 1));
  EXPECT_THAT(lefts, ElementsAre(10, 60, 80, 95, 145, 160));
}

TEST(ShortNumber, KeepsThreeDigitsThatMatter) {
  const std::pair<double, const char*> kCases[] = {{0, "0"},
                                                   {41.52, "41.5"},
                                                   {9.9, "9.9"},
                                                   {0.0411, "0.0411"},
                                                   {178.15, "178"},
                                                   {1234.5, "1,234"},
                                                   {-12345, "-12,345"},
                                                   {5.0, "5"},
                                                   {1e6, "1,000,000"},
                                                   {std::numeric_limits<double>::quiet_NaN(), "n/a"}};
  for (const auto& [value, text] : kCases) {
    EXPECT_EQ(short_number(value), text);
  }
}

TEST(Escaped, IsShownAndNotRun) {
  EXPECT_EQ(escaped("<script>alert('x')</script> & \"y\""),
            "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;y&quot;");
  EXPECT_EQ(escaped("Zürich × 大"), "Zürich × 大");
}

// Table 3-7 of the Unicode Standard: a lone continuation byte, an overlong "/", a surrogate, a character cut
// short and one above U+10FFFF are no UTF-8; each byte of them is replaced.
TEST(Escaped, WhatIsNoUtf8IsReplaced) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(escaped("a\x80z"), "a" + r + "z");
  EXPECT_EQ(escaped("\xC0\xAF"), r + r);
  EXPECT_EQ(escaped("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(escaped("\xE5\xA4"), r + r);
  EXPECT_EQ(escaped("\xF4\x90\x80\x80"), r + r + r + r);
  EXPECT_EQ(escaped(std::string_view("a\0b\x1B\x7F", 5)), "a" + r + "b" + r + r);
}

Figure small_figure() {
  Figure figure;
  figure.title = "Queue <b>";
  figure.x = {"Time (s)", false, 0, 10};
  figure.y = {"Requests & co", false, 0, 4};
  figure.lines.push_back({"Mean", Tone::kBlue, {{0, 0}, {5, 2}, {10, 4}}});
  figure.bands.push_back({"Lowest to highest", Tone::kBlue, {0, 10}, {0, 1}, {2, 4}});
  figure.marks.push_back({5, "half", Tone::kRed});
  return figure;
}

// 200 x 100 px. y ticks 0 .. 4, one digit of 7.2 px: the plot begins at 7.2 + 6 + 6 = 19.2 and ends at 200 -
// 14; it stands on 100 - 42 = 58. One row of marks' labels: its top is 24 + 15 = 39. So (5, 2) is in the
// middle of both: (19.2 + 186) / 2 = 102.6 and (58 + 39) / 2 = 48.5.
TEST(FigureSvg, DrawsWhereItShould) {
  const std::string svg = figure_svg(small_figure(), {200, 100}, "wide");
  EXPECT_THAT(svg, HasSubstr("d=\"M19.2,58.0h0L102.6,48.5L186.0,39.0\""));
  EXPECT_THAT(svg, HasSubstr("aria-label=\"Queue &lt;b&gt;\""));
  EXPECT_THAT(svg, HasSubstr(">Requests &amp; co</text>"));
  EXPECT_EQ(not_well_formed(svg), "");
}

TEST(FigureSvg, ALineWithAHoleIsDrawnInPieces) {
  Figure figure = small_figure();
  figure.lines[0].points[1].y = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(figure_svg(figure, {200, 100}, "wide"), HasSubstr("d=\"M19.2,58.0h0M186.0,39.0h0\""));
}

TEST(FigureSvg, NothingToShowIsSaid) {
  Figure figure;
  figure.title = "Empty";
  figure.x.log = true;
  EXPECT_THAT(figure_svg(figure, kWideFigure, "wide"), HasSubstr("No data"));
  figure.lines.push_back({"L", Tone::kBlue, {{0, 1}}});  // A log axis has no 0.
  EXPECT_EQ(not_well_formed(figure_svg(figure, kWideFigure, "wide")), "");
}

// Two categories, 60 + 40 and 100: the second layer of the first stands on the first.
TEST(FigureSvg, ColumnsStandOnEachOther) {
  Figure figure;
  figure.title = "Waits";
  figure.y = {"Share (%)", false, 0, 100};
  figure.columns.categories = {"8", "9"};
  figure.columns.layers = {{"KV blocks", Tone::kOrange, {60, 100}}, {"budget", Tone::kBlue, {40, 0}, true}};
  const std::string svg = figure_svg(figure, {200, 166}, "wide");  // From 124 up to 24: 1 px for 1 %.
  EXPECT_THAT(svg, HasSubstr("y=\"64.0\" width=\"48.0\" height=\"60.0\"><title>8: KV blocks 60</title>"));
  EXPECT_THAT(svg, HasSubstr("y=\"24.0\" width=\"48.0\" height=\"40.0\"><title>8: budget 40</title>"));
  EXPECT_THAT(svg, Not(HasSubstr("9: budget")));
  EXPECT_THAT(figure_legend(figure), HasSubstr("KV blocks"));
}

TEST(FigureLegend, NamesEachThing) {
  Figure figure = small_figure();
  figure.spans.push_back({"95 % interval", Tone::kRed, {2, 3}});
  const std::string legend = figure_legend(figure);
  for (const char* name : {"Mean", "Lowest to highest", "95 % interval"}) {
    EXPECT_THAT(legend, HasSubstr(name));
  }
  EXPECT_EQ(not_well_formed(legend), "");
}

// ---- pages

std::string page_with_everything(const std::string& name) {
  Page page(name, name);
  page.warning(name);
  page.note(name);
  page.tiles({{name, name, name}});
  page.heading(name);
  page.paragraph(name);
  page.figure(small_figure());
  page.figure(name, name, {{name, "x"}, {{name, Cell(name, 0.5, Tone::kBlue)}}, "a.csv"});
  page.table({{name, "x"}, {{name, Cell(name, 2, Tone::kBlue)}}, ""});
  page.folded(name, name);
  return page.take();
}

TEST(PageTest, IsWellFormedWhateverItIsGiven) {
  for (const char* name :
       {"plain", "</title><script>alert(1)</script>", "a\" onload=\"b", "&amp;", "'", "\xff\x01"}) {
    const std::string page = page_with_everything(name);
    EXPECT_EQ(not_well_formed(page), "");
    EXPECT_THAT(page, Not(HasSubstr("<script")));
    EXPECT_THAT(page, Not(HasSubstr("\"b\"")));
  }
  EXPECT_EQ(page_with_everything("plain"), page_with_everything("plain"));
}

TEST(PageTest, NeedsNothingFromElsewhere) {
  const std::string page = page_with_everything("plain");
  for (const char* reference :
       {"http:", "https:", "//", "url(", "@import", "src=\"", "<script", "<link rel=\"style"}) {
    EXPECT_THAT(page, Not(HasSubstr(reference)));
  }
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
}

// Relative luminance and contrast of WCAG 2.2 (w3.org/TR/WCAG22, "contrast ratio").
double luminance(std::string_view colour) {
  double sum = 0;
  const double weights[] = {0.2126, 0.7152, 0.0722};
  for (std::size_t i = 0; i < 3; ++i) {
    const double channel = std::stoi(std::string(colour.substr(1 + 2 * i, 2)), nullptr, 16) / 255.0;
    sum += weights[i] * (channel <= 0.04045 ? channel / 12.92 : std::pow((channel + 0.055) / 1.055, 2.4));
  }
  return sum;
}

double contrast(std::string_view a, std::string_view b) {
  const double la = luminance(a), lb = luminance(b);
  return (std::max(la, lb) + 0.05) / (std::min(la, lb) + 0.05);
}

// Text needs 4.5 : 1 (success criterion 1.4.3); tones are text, too, in the names of marks.
TEST(Theme, TextCanBeReadInLightAndDark) {
  EXPECT_NEAR(contrast("#ffffff", "#000000"), 21, 1e-9);  // The standard's own extreme.
  const auto find = [](std::string_view name) {
    return *std::find_if(theme().begin(), theme().end(),
                         [&](const ThemeColour& c) { return c.name == name; });
  };
  const ThemeColour paper = find("paper"), raised = find("raised");
  for (const char* name : {"ink", "muted", "t0", "t1", "t2", "t3", "t4", "t5", "t6"}) {
    const ThemeColour colour = find(name);
    EXPECT_GE(contrast(colour.light, paper.light), 4.5) << name;
    EXPECT_GE(contrast(colour.dark, paper.dark), 4.5) << name;
  }
  for (const char* name : {"ink", "muted"}) {
    EXPECT_GE(contrast(find(name).light, raised.light), 4.5) << name;
    EXPECT_GE(contrast(find(name).dark, raised.dark), 4.5) << name;
  }
}

}  // namespace
}  // namespace kneepoint::sim
