// Reads rates (hw/rates.proto), refusing what cannot be used.
#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "hw/rates.h"
#include "hw/rates.pb.h"
#include "hw/spec_error.h"

namespace kneepoint::hw {

namespace {

// Keeps the first complaint of the text format parser, for one clear line.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (text_.empty()) text_ = fmt::format("line {}, column {}: {}", line + 1, column + 1, message);
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

Rate read_rate(const pb::Rate& from, const std::string& where) {
  const auto refuse = [&](const std::string& why) {
    return SpecError(fmt::format("{}, rate '{}': {}", where, from.name(), why));
  };
  if (from.name().empty()) throw SpecError(where + ": a rate has no name");
  if (from.unit().empty()) throw refuse("has no unit; write \"1\" for a pure number");
  if (from.source().empty()) throw refuse("has no source; write where the number comes from");
  if (!std::isfinite(from.value())) throw refuse("value is not a finite number");
  if (!std::isfinite(from.lower()) || !std::isfinite(from.upper()) || from.lower() > from.upper()) {
    throw refuse(fmt::format("bounds {} to {} are no interval", from.lower(), from.upper()));
  }
  if (from.value() < from.lower() || from.value() > from.upper()) {
    throw refuse(
        fmt::format("value {} lies outside its bounds {} to {}", from.value(), from.lower(), from.upper()));
  }
  if (!std::isfinite(from.standard_error()) || from.standard_error() < 0) {
    throw refuse("standard_error is negative or not finite");
  }
  return {from.name(),  from.value(),          from.unit(),  from.lower(),
          from.upper(), from.standard_error(), from.source()};
}

FamilyRates read_family(const pb::Family& from, const std::string& label) {
  if (from.name().empty()) throw SpecError(label + ": a family has no name");
  const std::string where = fmt::format("{}: family '{}'", label, from.name());
  if (from.source().empty())
    throw SpecError(where + ": has no source; write which measurements it is fitted on");
  FamilyRates family{.name = from.name(),
                     .source = from.source(),
                     .rows = from.rows(),
                     .median_error = from.median_error(),
                     .p90_error = from.p90_error()};
  for (const pb::Rate& rate : from.rate()) {
    for (const Rate& before : family.rates) {
      if (before.name == rate.name())
        throw SpecError(fmt::format("{}, rate '{}': is there twice", where, rate.name()));
    }
    family.rates.push_back(read_rate(rate, where));
  }
  for (const pb::FittedRange& range : from.range()) {
    if (range.quantity().empty() || !std::isfinite(range.min()) || !std::isfinite(range.max()) ||
        range.min() > range.max()) {
      throw SpecError(fmt::format("{}, range '{}': {} to {} is no interval", where, range.quantity(),
                                  range.min(), range.max()));
    }
    const bool claims = range.claimed_max() != 0;
    if (claims && (!(range.claimed_max() > range.max()) || !std::isfinite(range.claimed_max()) || range.because().empty())) {
      throw SpecError(fmt::format("{}, range '{}': claims up to {}, which must be beyond {} and have a reason", where,
                                  range.quantity(), range.claimed_max(), range.max()));
    }
    family.ranges.push_back({range.quantity(), range.min(), range.max(), range.claimed_max(), range.because()});
  }
  const std::size_t n = family.rates.size();
  const std::size_t below_diagonal = n == 0 ? 0 : n * (n - 1) / 2;
  if (static_cast<std::size_t>(from.correlation_size()) != below_diagonal) {
    throw SpecError(fmt::format("{}: {} correlations where {} rates need {}", where, from.correlation_size(),
                                n, below_diagonal));
  }
  for (const double correlation : from.correlation()) {
    if (!(std::abs(correlation) <= 1)) throw SpecError(where + ": a correlation is not within -1 to 1");
    family.correlations.push_back(correlation);
  }
  return family;
}

}  // namespace

Rates parse_rates(const std::string& text, const std::string& label) {
  pb::Rates from;
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (!parser.ParseFromString(text, &from)) {
    throw SpecError(fmt::format("{}: {}", label, error.text()));
  }
  if (from.gpu().empty()) throw SpecError(label + ": gpu: is missing; write the name of the GPU measured");
  if (from.source().empty())
    throw SpecError(label + ": source: is missing; write where the measurements come from");
  Rates rates{.label = label, .gpu = from.gpu(), .source = from.source()};
  for (const pb::Family& family : from.family()) {
    if (rates.find(family.name()) != nullptr) {
      throw SpecError(fmt::format("{}: family '{}': is there twice", label, family.name()));
    }
    rates.families.push_back(read_family(family, label));
  }
  return rates;
}

namespace internal {

double checked_rate(const Rates& rates, const FamilyRates& family, std::string_view name,
                    std::string_view unit, double lower, double upper) {
  for (const Rate& rate : family.rates) {
    if (rate.name != name) continue;
    if (rate.unit != unit) {
      throw SpecError(fmt::format("{}: family '{}', rate '{}': unit is '{}', the form takes '{}'",
                                  rates.label, family.name, name, rate.unit, unit));
    }
    // Six digits are written; a value at its bound may be rounded across it.
    const double slack = 1e-5 * std::abs(rate.value);
    if (rate.value < lower - slack || rate.value > upper + slack) {
      throw SpecError(
          fmt::format("{}: family '{}', rate '{}': {} lies outside what the form allows, {} to {}",
                      rates.label, family.name, name, rate.value, lower, upper));
    }
    return std::clamp(rate.value, lower, upper);
  }
  throw SpecError(fmt::format("{}: family '{}', rate '{}': is missing; refit with `calibrate fit-ops`",
                              rates.label, family.name, name));
}

}  // namespace internal

}  // namespace kneepoint::hw
