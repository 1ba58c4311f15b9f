// Reads a Hugging Face config.json into an architecture.
#pragma once

#include <string>
#include <string_view>

#include "hw/model_arch.h"

namespace kneepoint::hw {

/// `text` is the file's content, `file` what errors call it, `name` the model's.
/// Throws SpecError, naming file and field, for what is missing, of the wrong type
/// or out of range; for an architecture that is not modelled it names the closest
/// one that is.
[[nodiscard]] ModelArch parse_model_config(std::string_view text, const std::string& file, const std::string& name);

}  // namespace kneepoint::hw
