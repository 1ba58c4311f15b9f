#include "sim/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "sim/markup.h"

namespace kneepoint::sim {
namespace {

// Everything but the colours. Sizes of text in figures are those sim/axis.cc
// reckons with: 12 px.
constexpr std::string_view kStyle = R"(
*{box-sizing:border-box}
html{color-scheme:light dark;background:var(--paper);color:var(--ink)}
body{margin:0 auto;padding:20px 20px 48px;max-width:1320px;font:15px/1.5 system-ui,"DejaVu Sans",sans-serif}
h1{font-size:25px;line-height:1.25;margin:0 0 4px}
h2{font-size:19px;margin:34px 0 8px}
h3{font-size:15px;margin:0}
p{margin:4px 0;max-width:84ch;overflow-wrap:anywhere}
.made,.about,.source{color:var(--muted);font-size:13px}
.made{max-width:none}
.warning,.note{border-left:4px solid var(--muted);background:var(--raised);padding:8px 12px;margin:10px 0;max-width:none}
.warning{border-color:var(--t4)}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(270px,1fr));gap:10px;margin:16px 0;padding:0;list-style:none}
.tiles li{background:var(--raised);border:1px solid var(--rule);border-radius:8px;padding:9px 12px}
.tiles span,.tiles small{display:block;color:var(--muted);font-size:13px}
.tiles b{display:block;font-size:21px;line-height:1.3;font-variant-numeric:tabular-nums}
.grid-of-figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,520px),1fr));gap:16px;margin:10px 0}
figure{margin:0;border:1px solid var(--rule);border-radius:8px;padding:12px 14px 10px;min-width:0;display:flex;flex-direction:column}
figure .plot{margin-top:auto}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;margin:6px 0;padding:0;list-style:none;font-size:13px}
.legend li{display:flex;align-items:center;gap:6px}
.key{width:22px;height:12px;flex:none}
svg{display:block}
svg.wide,svg.narrow{width:100%;height:auto}
svg.narrow{display:none}
svg text{font:12px system-ui,"DejaVu Sans",sans-serif;fill:var(--muted);font-variant-numeric:tabular-nums}
svg text.name{fill:var(--ink)}
svg text.mid{text-anchor:middle}
svg text.end{text-anchor:end}
svg text.ink{fill:var(--c);stroke:var(--paper);stroke-width:3px;paint-order:stroke}
.grid{stroke:var(--grid);fill:none}
.axis,.tick{stroke:var(--muted);fill:none}
.line{stroke:var(--c);fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.dashed{stroke-dasharray:6 4}
.mark{stroke:var(--c);fill:none;stroke-dasharray:3 3}
.band{fill:var(--c);fill-opacity:.2}
.band.strong{fill-opacity:.42}
.span{fill:var(--c);fill-opacity:.14}
.fill{fill:var(--c);stroke:var(--paper);stroke-width:1}
.fill.pale{fill-opacity:.45}
.dot{fill:var(--c);stroke:var(--paper)}
.scroll{overflow-x:auto;margin:10px 0}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:14px}
th,td{text-align:right;padding:4px 12px;border-bottom:1px solid var(--rule);white-space:nowrap}
th:first-child,td:first-child{text-align:left;padding-left:0;white-space:normal;min-width:130px;font-weight:400}
thead th{color:var(--muted);font-weight:600}
.share{display:flex;align-items:center;justify-content:flex-end;gap:8px}
.share svg{width:110px;height:10px;flex:none}
.share rect.all{fill:var(--grid)}
details{margin:10px 0}
summary{cursor:pointer;font-weight:600}
pre{font:13px/1.45 ui-monospace,"DejaVu Sans Mono",monospace;background:var(--raised);border:1px solid var(--rule);border-radius:8px;padding:10px 12px;white-space:pre-wrap;overflow-wrap:anywhere}
a{color:var(--t0)}
@media (max-width:560px){body{padding:14px 12px 36px}figure{padding:10px 8px}svg.wide{display:none}svg.narrow{display:block}.tiles{grid-template-columns:1fr 1fr}.tiles b{font-size:18px}th,td{padding:4px 8px}.share svg{width:60px}}
@media print{body{max-width:none;padding:0}figure,.tiles li{break-inside:avoid}}
)";

std::string colours(std::string_view ThemeColour::*side) {
  std::string text;
  for (const ThemeColour& colour : theme()) {
    fmt::format_to(std::back_inserter(text), "--{}:{};", colour.name, colour.*side);
  }
  return text;
}

std::string style() {
  std::string text = fmt::format(":root{{{}}}\n@media (prefers-color-scheme:dark){{:root{{{}}}}}",
                                 colours(&ThemeColour::light), colours(&ThemeColour::dark));
  for (int tone = 0; tone < kNumTones; ++tone) {
    text += fmt::format("\n.t{0}{{--c:var(--t{0})}}", tone);
  }
  return text.append(kStyle);
}

std::string csv_link(std::string_view csv) {
  return csv.empty() ? "" : fmt::format("Numbers: <a href=\"{0}\">{0}</a>", escaped(csv));
}

std::string caption(std::string_view title, std::string_view about) {
  return fmt::format("<figcaption><h3>{}</h3><p class=\"about\">{}</p></figcaption>", escaped(title),
                     escaped(about));
}

std::string cell(const Cell& c) {
  if (c.share < 0) {
    return escaped(c.text);
  }
  return fmt::format(
      "<div class=\"share\">{}<svg viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">"
      "<rect class=\"all\" width=\"100\" height=\"10\"/><rect class=\"fill t{}\" width=\"{:.1f}\" "
      "height=\"10\"/></svg>"
      "</div>",
      escaped(c.text), static_cast<int>(c.tone), 100 * std::min(c.share, 1.0));
}

}  // namespace

const std::vector<ThemeColour>& theme() {
  static const std::vector<ThemeColour> kTheme{
      {"paper", "#ffffff", "#0d1117"}, {"ink", "#1b1f24", "#e6edf3"},  {"muted", "#57606a", "#9198a1"},
      {"rule", "#d0d7de", "#30363d"},  {"grid", "#e6e9ec", "#262c34"}, {"raised", "#f6f8fa", "#161b22"},
      {"t0", "#0b62c4", "#58a6ff"},    {"t1", "#a84b00", "#f0a33e"},   {"t2", "#1a7f37", "#3fb950"},
      {"t3", "#7a3ed8", "#bc8cff"},    {"t4", "#c9202d", "#ff7b72"},   {"t5", "#0e7490", "#39c5cf"},
      {"t6", "#57606a", "#9198a1"}};
  return kTheme;
}

Page::Page(std::string_view title, std::string made_by) : made_by_(std::move(made_by)) {
  text_ = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "img-src data:\"/><link rel=\"icon\" href=\"data:,\"/>"
      "<title>{0}</title><style>{1}</style></head>\n<body>\n<h1>{0}</h1>\n<p class=\"made\">{2}</p>\n",
      escaped(title), style(), escaped(made_by_));
}

void Page::leave_grid() {
  if (std::exchange(in_grid_, false)) {
    text_ += "</div>\n";
  }
}

void Page::warning(std::string_view text) {
  leave_grid();
  text_ += fmt::format("<p class=\"warning\">{}</p>\n", escaped(text));
}

void Page::note(std::string_view text) {
  leave_grid();
  text_ += fmt::format("<p class=\"note\">{}</p>\n", escaped(text));
}

void Page::heading(std::string_view text) {
  leave_grid();
  text_ += fmt::format("<h2>{}</h2>\n", escaped(text));
}

void Page::paragraph(std::string_view text) {
  leave_grid();
  text_ += fmt::format("<p>{}</p>\n", escaped(text));
}

void Page::tiles(const std::vector<Tile>& tiles) {
  leave_grid();
  text_ += "<ul class=\"tiles\">\n";
  for (const Tile& tile : tiles) {
    text_ += fmt::format("<li><span>{}</span><b>{}</b><small>{}</small></li>\n", escaped(tile.label),
                         escaped(tile.value), escaped(tile.note));
  }
  text_ += "</ul>\n";
}

void Page::enter_grid() {
  if (!std::exchange(in_grid_, true)) {
    text_ += "<div class=\"grid-of-figures\">\n";
  }
}

void Page::rows(const PageTable& table) {
  text_ += "<div class=\"scroll\"><table><thead><tr>";
  for (const std::string& name : table.header) {
    text_ += fmt::format("<th scope=\"col\">{}</th>", escaped(name));
  }
  text_ += "</tr></thead><tbody>\n";
  for (const std::vector<Cell>& row : table.rows) {
    text_ += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      text_ += i == 0 ? fmt::format("<th scope=\"row\">{}</th>", cell(row[i]))
                      : fmt::format("<td>{}</td>", cell(row[i]));
    }
    text_ += "</tr>\n";
  }
  text_ += "</tbody></table></div>\n";
}

void Page::table(const PageTable& table) {
  leave_grid();
  rows(table);
  if (!table.csv.empty()) {
    text_ += fmt::format("<p class=\"source\">{}</p>\n", csv_link(table.csv));
  }
}

void Page::figure(const Figure& figure) {
  enter_grid();
  text_ += fmt::format("<figure>{}{}\n<div class=\"plot\">{}\n{}</div>\n{}</figure>\n",
                       caption(figure.title, figure.about), figure_legend(figure),
                       figure_svg(figure, kWideFigure, "wide"), figure_svg(figure, kNarrowFigure, "narrow"),
                       source(figure.csv));
}

void Page::figure(std::string_view title, std::string_view about, const PageTable& table) {
  enter_grid();
  text_ += fmt::format("<figure>{}", caption(title, about));
  rows(table);
  text_ += fmt::format("<div class=\"plot\"></div>{}</figure>\n", source(table.csv));
}

std::string Page::source(std::string_view csv) const {
  return fmt::format("<p class=\"source\">{} {}</p>", escaped(made_by_), csv_link(csv));
}

void Page::folded(std::string_view title, std::string_view text) {
  leave_grid();
  text_ +=
      fmt::format("<details><summary>{}</summary><pre>{}</pre></details>\n", escaped(title), escaped(text));
}

std::string Page::take() {
  leave_grid();
  text_ += "</body></html>\n";
  return std::move(text_);
}

}  // namespace kneepoint::sim
