// The figures of a report for a paper: a gnuplot script each, and what gnuplot
// makes of it, SVG and PDF, in the size of one column.
//
// A script holds its numbers itself (gnuplot's data blocks), so that it can be
// moved into a paper's folder and edited there; it is made from the same Figure
// as the drawing in report.html, so both show the same. Where gnuplot is not
// installed the scripts are written all the same, and the caller says so.
//
// The bytes are the same for the same gnuplot: the date in a PDF is 1970.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "sim/figure.h"
#include "sim/output_files.h"

namespace kneepoint::sim {

/// A figure with the name of its files.
struct NamedFigure {
  std::string name;  ///< "ttft_over_load".
  Figure figure;
};

/// The script of `named.name`.gp, which writes `named.name`.svg and .pdf into the folder where it is run.
[[nodiscard]] std::string gnuplot_script(const NamedFigure& named, std::string_view made_by);

/// Writes .gp and, where gnuplot runs, .svg and .pdf of each figure into the folder of `files`. Returns "" or
/// one line that says why there are only scripts. Throws OutputError if gnuplot fails.
[[nodiscard]] std::string write_paper_plots(OutputFiles& files, const std::vector<NamedFigure>& figures,
                                            std::string_view made_by);

/// What a figure's files end in.
inline constexpr std::array kPaperPlotEndings{".gp", ".svg", ".pdf"};
/// The names of all files that this may write.
[[nodiscard]] std::vector<std::string> paper_plot_files(const std::vector<NamedFigure>& figures);

}  // namespace kneepoint::sim
