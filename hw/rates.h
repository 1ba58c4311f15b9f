// Rates of one GPU: the fitted parameters of the operator forms, with what is
// known about them.
//
// Files are text protobufs (hw/rates.proto), written by `calibrate fit-ops`;
// those of h100, h200 and l40s are compiled in. Reading is strict: a number
// without unit or source, not finite, or outside its bounds is an error.
//
// Errors  SpecError, one line: which file, family and rate, what is wrong.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hw/parameter.h"

namespace kneepoint::hw {

struct Rate {
  std::string name;
  double value = 0;
  std::string unit;
  double lower = 0;
  double upper = 0;
  double standard_error = 0;
  std::string source;
};

struct FittedRange {
  std::string quantity;
  double min = 0;
  double max = 0;
  double claimed_max = 0;  ///< Beyond max the form is carried on, up to here; 0: it is not.
  std::string because;     ///< Why it may be.
};

struct FamilyRates {
  std::string name;
  std::string source;
  std::int64_t rows = 0;
  double median_error = 0;
  double p90_error = 0;
  std::vector<Rate> rates = {};
  std::vector<FittedRange> ranges = {};
  std::vector<double> correlations = {};  ///< Below the diagonal, row by row.
};

struct Rates {
  std::string label;  ///< File or bundled name, for messages.
  std::string gpu;
  std::string source;
  std::vector<FamilyRates> families = {};

  /// Null if these rates lack it.
  [[nodiscard]] const FamilyRates* find(std::string_view family) const;
  /// Throws SpecError if these rates lack it.
  [[nodiscard]] const FamilyRates& family(std::string_view name) const;
};

/// Names of the bundled rates, sorted.
[[nodiscard]] const std::vector<std::string>& rates_names();

/// The bundled rates `name`, or those in the file, if `name` is a path ending in ".textproto".
[[nodiscard]] Rates load_rates(const std::string& name);

/// Rates from text; `label` names them in messages.
[[nodiscard]] Rates parse_rates(const std::string& text, const std::string& label);

/// The same bytes for the same rates; numbers with six significant digits.
void write_rates(std::ostream& out, const Rates& rates);

namespace internal {
/// The value of rate `name`; throws SpecError if it is missing, has another
/// unit, or lies outside [lower, upper].
[[nodiscard]] double checked_rate(const Rates& rates, const FamilyRates& family, std::string_view name,
                                  std::string_view unit, double lower, double upper);
}  // namespace internal

/// A form's parameters out of `rates`; every row of the form's table must be there.
template <class Params>
[[nodiscard]] Params parameters_of(const Rates& rates, std::string_view family_name,
                                   std::span<const ParameterSpec<Params>> table) {
  const FamilyRates& family = rates.family(family_name);
  Params params;
  for (const ParameterSpec<Params>& row : table) {
    params.*(row.member) = internal::checked_rate(rates, family, row.name, row.unit, row.lower, row.upper);
  }
  return params;
}

}  // namespace kneepoint::hw
