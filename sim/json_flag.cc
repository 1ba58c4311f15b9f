#include "sim/json_flag.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/usage_error.h"

namespace kneepoint::sim {
namespace {

using Json = nlohmann::json;

Json json_or_string(const std::string& text) {
  Json value = parse_flat_json(text);
  return value.is_discarded() ? Json(text) : value;
}

}  // namespace

Json parse_flat_json(const std::string& text) {
  constexpr int kMaxDepth = 16;
  bool too_deep = false;
  const auto bounded = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  Json value = Json::parse(text, bounded, false);
  return too_deep ? Json(Json::value_t::discarded) : value;
}

void JsonFlag::add(const std::string& key, const std::string& value) {
  if (key.empty()) {
    Json whole = parse_flat_json(value);
    if (whole.is_number_integer() && name_ == "--compilation-config") {
      whole = Json{{"mode", whole}};  // -cc 3: a level alone.
    }
    if (!whole.is_object()) {
      throw UsageError(name_ + R"( is not a JSON object; quote it as in '{"key": 1}')");
    }
    json_.merge_patch(whole);
    return;
  }
  const bool appends = key.back() == '+';
  std::string path = key.substr(0, key.size() - (appends ? 1 : 0));
  if (std::count(path.begin(), path.end(), '.') > 16) {
    throw UsageError(fmt::format("{}: key {}... goes too deep", name_, key.substr(0, 40)));
  }
  std::replace(path.begin(), path.end(), '.', '/');
  try {
    Json& place = json_[Json::json_pointer("/" + path)];
    if (appends) {
      place.push_back(json_or_string(value));
    } else {
      place = json_or_string(value);
    }
  } catch (const Json::exception&) {
    throw UsageError(fmt::format("{}.{} contradicts what was given before", name_, key));
  }
}

bool JsonFlag::is_default_compilation() const {
  for (const auto& [key, value] : json_.items()) {
    const bool by_default = key == "cache_dir" || key == "debug_dump_path" ||
                            ((key == "mode" || key == "level") && (value == 3 || value == "VLLM_COMPILE")) ||
                            (key == "cudagraph_mode" && value == "FULL_AND_PIECEWISE");
    if (!by_default) {
      return false;
    }
  }
  return true;
}

}  // namespace kneepoint::sim
