#include "sim/paper_plots.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "sim/page.h"

namespace kneepoint::sim {

namespace fs = std::filesystem;

namespace {

// ---- the script

// In single quotes, as gnuplot takes any text; a line stays a line.
std::string in_quotes(std::string_view text) {
  std::string safe = "'";
  for (const char c : text) {
    if (c == '\'') {
      safe += "''";
    } else {
      safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return safe + "'";
}

std::string colour(Tone tone) {
  const std::string name = fmt::format("t{}", tone_number(tone));
  const auto found =
      std::find_if(theme().begin(), theme().end(), [&](const ThemeColour& c) { return c.name == name; });
  return fmt::format("rgb '{}'", found->light);
}

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "NaN";
}

/// A script in the making: settings, data blocks, and what to plot of them.
class Script {
 public:
  explicit Script(const Figure& figure) : figure_(figure) {}
  std::string write(std::string_view name, std::string_view made_by);

 private:
  template <typename... Args>
  void put(fmt::format_string<Args...> form, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), form, std::forward<Args>(args)...);
    text_ += '\n';
  }
  void axes();
  void marks();
  void bands();
  void lines();
  void columns();
  void intervals();
  [[nodiscard]] std::string next_block() { return fmt::format("$d{}", ++blocks_); }

  const Figure& figure_;
  std::string text_;
  int blocks_ = 0;
  std::vector<std::string> plots_;
  std::vector<std::string> key_;  // Of what is no plot.
};

void Script::axes() {
  const auto axis = [&](char name, const FigureAxis& a) {
    put("set {}label {}", name, in_quotes(a.label));
    if (a.log) put("set logscale {}", name);
    if (a.low || a.high) {
      put("set {}range [{}:{}]", name, a.low ? number(*a.low) : "*", a.high ? number(*a.high) : "*");
    }
  };
  axis('x', figure_.x);
  axis('y', figure_.y);
}

// Their names stand in the key, where they cannot leave the picture or meet.
void Script::marks() {
  for (const Span& span : figure_.spans) {
    put("set object rectangle from {}, graph 0 to {}, graph 1 behind fillcolor {} fillstyle solid 0.15 "
        "noborder",
        number(span.x.low), number(span.x.high), colour(span.tone));
    key_.push_back(
        fmt::format("keyentry with filledcurves fillstyle solid 0.15 noborder fillcolor {} title {}",
                    colour(span.tone), in_quotes(span.label)));
  }
  for (const Mark& mark : figure_.marks) {
    const std::string look = fmt::format("dashtype 3 linecolor {}", colour(mark.tone));
    if (mark.horizontal) {
      put("set arrow from graph 0, first {0} to graph 1, first {0} nohead {1}", number(mark.at), look);
    } else {
      put("set arrow from {0}, graph 0 to {0}, graph 1 nohead {1}", number(mark.at), look);
    }
    key_.push_back(fmt::format("keyentry with lines {} title {}", look, in_quotes(mark.label)));
  }
}

void Script::bands() {
  for (const Band& band : figure_.bands) {
    const std::string block = next_block();
    put("{} << EOD", block);
    for (std::size_t i = 0; i < band.x.size(); ++i) {
      put("{} {} {}", number(band.x[i]), number(band.low[i]), number(band.high[i]));
    }
    put("EOD");
    if (!band.x.empty()) {
      plots_.push_back(fmt::format(
          "{} using 1:2:3 with filledcurves fillstyle transparent solid 0.25 noborder linecolor {} title {}",
          block, colour(band.tone), in_quotes(band.label)));
    }
  }
}

void Script::lines() {
  for (const Line& line : figure_.lines) {
    const std::string block = next_block();
    put("{} << EOD", block);
    for (const Point& point : line.points) {
      put("{} {}", number(point.x), number(point.y));
    }
    put("EOD");
    if (!line.points.empty()) {
      plots_.push_back(
          fmt::format("{} using 1:2 with {} linewidth 1.5 {}linecolor {}{} {}", block,
                      line.dots ? "linespoints" : "lines", line.dashed ? "dashtype 2 " : "",
                      colour(line.tone), line.dots ? " pointtype 7 pointsize 0.4" : "",
                      line.label.empty() ? "notitle" : fmt::format("title {}", in_quotes(line.label))));
    }
  }
}

void Script::columns() {
  const Columns& all = figure_.columns;
  if (all.categories.empty()) {
    return;
  }
  const std::string block = next_block();
  put("set style data histograms\nset style histogram rowstacked\nset boxwidth 0.75 relative\nset style fill "
      "solid 0.8 noborder");
  put("{} << EOD", block);
  for (std::size_t i = 0; i < all.categories.size(); ++i) {
    std::string row = fmt::format("\"{}\"", all.categories[i]);
    for (const Columns::Layer& layer : all.layers) {
      row += ' ';
      row += number(layer.values[i]);
    }
    put("{}", row);
  }
  put("EOD");
  put("set xtics rotate by -45 font ',7'");
  for (std::size_t layer = 0; layer < all.layers.size(); ++layer) {
    plots_.push_back(fmt::format("{} using {}:xtic(1) linecolor {} title {}", block, layer + 2,
                                 colour(all.layers[layer].tone), in_quotes(all.layers[layer].label)));
  }
}

// Rows from the top down; the parts of a row beside each other.
void Script::intervals() {
  const Intervals& all = figure_.intervals;
  if (all.rows.empty()) {
    return;
  }
  put("set yrange [{}:-0.7]", static_cast<double>(all.rows.size()) - 0.3);
  put("set ytics scale 0 font ',7'\nset ytics ()");
  for (std::size_t i = 0; i < all.rows.size(); ++i) {
    put("set ytics add ({} {})", in_quotes(all.rows[i].name), i);
  }
  for (std::size_t part = 0; part < all.parts.size(); ++part) {
    const std::string block = next_block();
    put("{} << EOD", block);
    for (std::size_t i = 0; i < all.rows.size(); ++i) {
      put("{} {} {}", number(all.rows[i].at), static_cast<double>(i) - 0.2 + 0.2 * static_cast<double>(part),
          number(all.rows[i].half_widths[part]));
    }
    put("EOD");
    plots_.push_back(
        fmt::format("{} using 1:2:3 with xerrorbars pointtype 7 pointsize 0.5 linecolor {} title {}", block,
                    colour(all.parts[part].tone), in_quotes(all.parts[part].label)));
  }
}

std::string Script::write(std::string_view name, std::string_view made_by) {
  put("# {}\n# {}\n# Numbers: {}", in_quotes(figure_.title), in_quotes(made_by), figure_.csv);
  put("reset session\nset encoding utf8\nset termoption noenhanced\nset key outside top center horizontal "
      "maxcols 2 samplen 1.5 spacing 0.9 font ',7' noenhanced");
  put("set grid ytics linecolor rgb '#dddddd'\nset border 3\nset tics nomirror\nset datafile missing 'NaN'");
  axes();
  marks();
  bands();
  lines();
  columns();
  intervals();
  if (plots_.empty()) {
    put("set xrange [0:1]\nset yrange [0:1]\nset label 'No data' at graph 0.5, graph 0.5 center");
    plots_.emplace_back("NaN notitle");
  }
  plots_.insert(plots_.end(), key_.begin(), key_.end());
  put("set terminal svg size 480,340 font 'Helvetica,11' noenhanced\nset output '{}.svg'", name);
  put("plot {}", fmt::join(plots_, ", \\\n  "));
  put("set terminal pdfcairo size 8.8cm,6.4cm font 'Helvetica,8' noenhanced\nset output "
      "'{}.pdf'\nreplot\nunset output",
      name);
  return std::move(text_);
}

// ---- gnuplot

/// A folder that is gone again afterwards.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "kneepoint.XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw OutputError(fmt::format("{}: cannot be made: {}", name, std::strerror(errno)));
    }
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

// The time of writing that cairo puts into a PDF, made the same each time. Nothing moves: as many digits.
std::string without_date(std::string pdf) {
  constexpr std::string_view kField = "/CreationDate (D:";
  constexpr std::string_view kDate = "19700101000000";
  if (const std::size_t at = pdf.rfind(kField);
      at != std::string::npos && at + kField.size() + kDate.size() < pdf.size()) {
    pdf.replace(at + kField.size(), kDate.size(), kDate);
  }
  return pdf;
}

// gnuplot's environment: ours, in the C locale.
std::vector<std::string> environment() {
  std::vector<std::string> kept{"LC_ALL=C.UTF-8"};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with("LC_ALL=") && !text.starts_with("GNUTERM=")) {
      kept.emplace_back(text);
    }
  }
  return kept;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) {
    all.push_back(word.data());
  }
  all.push_back(nullptr);
  return all;
}

/// Runs gnuplot over `scripts` in `folder`, what it says going to gnuplot.log there. False: not installed.
[[nodiscard]] bool run_gnuplot(const fs::path& folder, const std::vector<std::string>& scripts) {
  std::vector<std::string> words{"gnuplot"};
  words.insert(words.end(), scripts.begin(), scripts.end());
  std::vector<std::string> variables = environment();
  const std::string log = (folder / "gnuplot.log").string();
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
  ::posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, "gnuplot", &actions, nullptr, pointers(words).data(),
                                   pointers(variables).data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT) {
    return false;
  }
  if (error != 0) {
    throw OutputError(fmt::format("gnuplot: cannot be started: {}", std::strerror(error)));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::string said = read_all(log);
    std::replace(said.begin(), said.end(), '\n', ' ');
    throw OutputError(
        fmt::format("gnuplot failed: {}; leave out --plots, or see the message", said.substr(0, 300)));
  }
  return true;
}

}  // namespace

std::string gnuplot_script(const NamedFigure& named, std::string_view made_by) {
  return Script(named.figure).write(named.name, made_by);
}

std::vector<std::string> paper_plot_files(const std::vector<NamedFigure>& figures) {
  std::vector<std::string> names;
  for (const NamedFigure& named : figures) {
    for (const char* ending : kPaperPlotEndings) {
      names.push_back(named.name + ending);
    }
  }
  return names;
}

std::string write_paper_plots(OutputFiles& files, const std::vector<NamedFigure>& figures,
                              std::string_view made_by) {
  const TemporaryFolder folder;
  std::vector<std::string> scripts;
  for (const NamedFigure& named : figures) {
    const std::string script = gnuplot_script(named, made_by);
    scripts.push_back(named.name + ".gp");
    files.create(scripts.back()).write(script);
    std::ofstream(folder.path() / scripts.back(), std::ios::binary) << script;
  }
  if (!run_gnuplot(folder.path(), scripts)) {
    return "--plots: gnuplot is not installed, so there are only the scripts: install gnuplot-nox and run "
           "gnuplot *.gp there";
  }
  for (const NamedFigure& named : figures) {
    for (const char* ending : {".svg", ".pdf"}) {
      std::string bytes = read_all(folder.path() / (named.name + ending));
      if (bytes.empty()) {
        throw OutputError(fmt::format("gnuplot: {}{} did not come; is its pdfcairo terminal installed?",
                                      named.name, ending));
      }
      files.create(named.name + ending).write(without_date(std::move(bytes)));
    }
  }
  return "";
}

}  // namespace kneepoint::sim
