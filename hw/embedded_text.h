// Text files of this folder, compiled into the library, so that a tool finds
// its models, GPUs and rates from any directory. CMake's kneepoint_embed_text()
// (hw/CMakeLists.txt) writes the definitions.
#pragma once

#include <span>
#include <string_view>

namespace kneepoint::hw::bundled {

struct EmbeddedText {
  std::string_view name;  ///< The file's name without folder and extension.
  std::string_view text;
};

/// hw/gpus/*.textproto, ordered by name.
[[nodiscard]] std::span<const EmbeddedText> gpus();

/// hw/models/*.json, ordered by name.
[[nodiscard]] std::span<const EmbeddedText> models();

/// hw/rates/*.textproto, ordered by name.
[[nodiscard]] std::span<const EmbeddedText> rates();

/// hw/server/memory.textproto.
[[nodiscard]] std::span<const EmbeddedText> memory_terms();

/// hw/server/costs.textproto.
[[nodiscard]] std::span<const EmbeddedText> server_costs();

}  // namespace kneepoint::hw::bundled
