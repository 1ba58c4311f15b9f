// A report as one HTML file that needs nothing else: no network, no script, no
// font of its own. Style and figures stand in it; its security policy forbids
// whatever would leave the file.
//
//     Page page("Azure conversations on H100", "llama-3.1-8b, bfloat16, ...");
//     page.tiles({{"p99 TTFT", "179 ms", "p50 41.5"}});
//     page.heading("Over time");
//     page.figure(figure);
//     write(page.take());
//
// It follows the reader's choice of light or dark and puts figures side by side
// where there is room. It is well-formed XML, too, so that any parser reads it.
// Everything given is escaped here; callers pass plain text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/figure.h"

namespace kneepoint::sim {

/// A headline number.
struct Tile {
  std::string label;
  std::string value;  ///< With its unit.
  std::string note;   ///< Smaller, below; may be empty.
};

/// Text, or a share drawn as a bar with its text.
struct Cell {
  std::string text;
  double share = -1;  ///< In [0, 1]; below 0: no bar.
  Tone tone = Tone::kBlue;
  Cell(std::string plain) : text(std::move(plain)) {}  // NOLINT: a cell is its text.
  Cell(const char* plain) : text(plain) {}             // NOLINT
  Cell(std::string of, double bar, Tone colour) : text(std::move(of)), share(bar), tone(colour) {}
};

struct PageTable {
  std::vector<std::string> header;
  std::vector<std::vector<Cell>> rows;  ///< The first cell of a row names it.
  std::string csv;                      ///< The file with its numbers; may be empty.
};

/// A colour of the style, for light and for dark: "#0b62c4". Tests hold them against the contrast rules.
struct ThemeColour {
  std::string_view name;  ///< "paper", "ink", "t0" ...
  std::string_view light;
  std::string_view dark;
};
[[nodiscard]] const std::vector<ThemeColour>& theme();

class Page {
 public:
  /// `made_by` is the one line of configuration that each figure repeats.
  Page(std::string_view title, std::string made_by);

  /// What must not be overlooked: OVERLOADED and the like.
  void warning(std::string_view text);
  void note(std::string_view text);
  void heading(std::string_view text);
  void paragraph(std::string_view text);
  void tiles(const std::vector<Tile>& tiles);
  void table(const PageTable& table);
  /// A table that stands among figures.
  void figure(std::string_view title, std::string_view about, const PageTable& table);
  /// Figures that follow each other share rows where there is room.
  void figure(const Figure& figure);
  /// Text as it is, folded away until asked for.
  void folded(std::string_view title, std::string_view text);
  /// Ends the page.
  [[nodiscard]] std::string take();

 private:
  void enter_grid();
  void leave_grid();
  void rows(const PageTable& table);
  [[nodiscard]] std::string source(std::string_view csv) const;

  std::string made_by_;
  std::string text_;
  bool in_grid_ = false;
};

}  // namespace kneepoint::sim
