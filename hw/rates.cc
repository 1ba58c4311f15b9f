#include "hw/rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <ostream>
#include <sstream>

#include "hw/closest_name.h"
#include "hw/embedded_text.h"
#include "hw/spec_error.h"

namespace kneepoint::hw {

const FamilyRates* Rates::find(std::string_view family) const {
  const auto found = std::ranges::find(families, family, &FamilyRates::name);
  return found == families.end() ? nullptr : &*found;
}

const FamilyRates& Rates::family(std::string_view name) const {
  const FamilyRates* found = find(name);
  if (found == nullptr) {
    throw SpecError(fmt::format("{}: no family '{}'; fit it with `calibrate fit-ops`", label, name));
  }
  return *found;
}

const std::vector<std::string>& rates_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const bundled::EmbeddedText& text : bundled::rates()) result.emplace_back(text.name);
    std::ranges::sort(result);
    return result;
  }();
  return names;
}

Rates load_rates(const std::string& name) {
  if (name.ends_with(".textproto")) {
    std::ifstream in(name);
    if (!in) throw SpecError(fmt::format("{}: cannot be opened", name));
    std::ostringstream text;
    text << in.rdbuf();
    return parse_rates(text.str(), name);
  }
  for (const bundled::EmbeddedText& text : bundled::rates()) {
    if (text.name == name) return parse_rates(std::string(text.text), name);
  }
  const std::string close = closest_name(name, rates_names());
  throw SpecError(fmt::format("rates '{}': unknown{}; bundled are {}; a file's path ends in .textproto", name,
                              close.empty() ? "" : fmt::format(", did you mean '{}'?", close),
                              fmt::join(rates_names(), ", ")));
}

void write_rates(std::ostream& out, const Rates& rates) {
  out << fmt::format("# Written by `calibrate fit-ops`; do not edit.\ngpu: \"{}\"\nsource: \"{}\"\n",
                     rates.gpu, rates.source);
  for (const FamilyRates& family : rates.families) {
    out << fmt::format("\nfamily {{\n  name: \"{}\"\n  source: \"{}\"\n  rows: {}\n", family.name,
                       family.source, family.rows);
    out << fmt::format("  median_error: {:.4g}\n  p90_error: {:.4g}\n", family.median_error,
                       family.p90_error);
    for (const Rate& rate : family.rates) {
      out << fmt::format(
          "  rate {{ name: \"{}\" value: {:.6g} unit: \"{}\" lower: {:.6g} upper: {:.6g} standard_error: "
          "{:.3g} "
          "source: \"{}\" }}\n",
          rate.name, rate.value, rate.unit, rate.lower, rate.upper, rate.standard_error, rate.source);
    }
    for (const FittedRange& range : family.ranges) {
      const std::string claim = range.claimed_max == 0 ? ""
                                                       : fmt::format(" claimed_max: {:.10g} because: \"{}\"",
                                                                     range.claimed_max, range.because);
      out << fmt::format("  range {{ quantity: \"{}\" min: {:.10g} max: {:.10g}{} }}\n", range.quantity,
                         range.min, range.max, claim);
    }
    std::size_t next = 0;
    for (std::size_t row = 1; next < family.correlations.size(); ++row) {
      const std::size_t end = std::min(next + row, family.correlations.size());
      out << "  correlation: [";
      for (std::size_t i = next; i < end; ++i) {
        out << fmt::format("{}{:.3g}", i == next ? "" : ", ", family.correlations[i]);
      }
      out << "]\n";
      next = end;
    }
    out << "}\n";
  }
}

}  // namespace kneepoint::hw
