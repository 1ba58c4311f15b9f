// The parameters of an operator form, as a table.
//
// A form is a plain function of a shape, a struct of doubles and a Roof. The
// table next to the struct says what each double means, in which unit, and
// between which bounds physics allows it; the loader of rates and the fit in
// calibrate/ both walk that table, so a parameter exists once.
#pragma once

#include <string_view>

namespace kneepoint::hw {

template <class Params>
struct ParameterSpec {
  std::string_view name;
  std::string_view unit;   ///< "1" for a pure number.
  double Params::*member;  ///< Where it lives.
  double lower = 0;        ///< Bounds, both included; positive, the fit runs in logarithms.
  double upper = 0;
  double start = 0;  ///< Where a fit begins.
  std::string_view meaning;
};

}  // namespace kneepoint::hw
