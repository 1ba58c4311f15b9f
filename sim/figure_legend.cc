#include <fmt/format.h>

#include "sim/figure.h"
#include "sim/markup.h"

namespace kneepoint::sim {
namespace {

void add_to_legend(std::string& items, std::string_view sample, std::string_view label) {
  if (!label.empty()) {
    items += fmt::format("<li><svg class=\"key\" viewBox=\"0 0 22 12\" aria-hidden=\"true\">{}</svg>{}</li>",
                         sample, escaped(label));
  }
}

}  // namespace

std::string figure_legend(const Figure& figure) {
  std::string items;
  for (const Line& line : figure.lines) {
    add_to_legend(
        items,
        fmt::format("<path class=\"line t{}{}\" d=\"M1,6H21\"/>{}", tone_number(line.tone),
                    line.dashed ? " dashed" : "",
                    line.dots ? fmt::format("<circle class=\"dot t{}\" cx=\"11\" cy=\"6\" r=\"3\"/>",
                                            tone_number(line.tone))
                              : ""),
        line.label);
  }
  for (const Band& band : figure.bands) {
    add_to_legend(items,
                  fmt::format("<path class=\"band t{}{}\" d=\"M1,1H21V11H1Z\"/>", tone_number(band.tone),
                              band.strong ? " strong" : ""),
                  band.label);
  }
  for (const Span& span : figure.spans) {
    add_to_legend(items,
                  fmt::format("<path class=\"span t{}\" d=\"M1,1H21V11H1Z\"/>", tone_number(span.tone)),
                  span.label);
  }
  for (const Columns::Layer& layer : figure.columns.layers) {
    add_to_legend(items,
                  fmt::format("<path class=\"fill t{}{}\" d=\"M1,1H21V11H1Z\"/>", tone_number(layer.tone),
                              layer.hatched ? " pale" : ""),
                  layer.label);
  }
  for (const Intervals::Part& part : figure.intervals.parts) {
    add_to_legend(
        items,
        fmt::format("<path class=\"line t{0}\" d=\"M1,6H21\"/><circle class=\"dot t{0}\" cx=\"11\" cy=\"6\" "
                    "r=\"4\"/>",
                    tone_number(part.tone)),
        part.label);
  }
  add_to_legend(items, "<path class=\"tick\" d=\"M6,2v8M11,2v8M16,2v8\"/>", figure.intervals.tick_label);
  return items.empty() ? "" : fmt::format("<ul class=\"legend\">{}</ul>", items);
}

}  // namespace kneepoint::sim
