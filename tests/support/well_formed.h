// Whether a text is well-formed XML, as far as our pages use it: tags close in
// the order in which they opened, attributes are quoted and named once, "&"
// starts an entity, "<" stands only in front of a tag.
#pragma once

#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace kneepoint::testing_support {

namespace well_formed_parts {

inline bool is_name(std::string_view text) {
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && c != ':') {
      return false;
    }
  }
  return !text.empty();
}

// "" or what is wrong with the character data.
inline std::string wrong_with_text(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 && c != '\n' && c != '\t') {
      return "a control character";
    }
    if (text[i] == '&') {
      const std::size_t end = text.find(';', i);
      const std::string_view name = end == std::string_view::npos ? "" : text.substr(i + 1, end - i - 1);
      if (name != "amp" && name != "lt" && name != "gt" && name != "quot" && name != "#39") {
        return "a bare & before: " + std::string(text.substr(i, 20));
      }
    }
  }
  return "";
}

// "" or what is wrong with `name="value" name="value"`.
inline std::string wrong_with_attributes(std::string_view text) {
  std::set<std::string_view> names;
  while (true) {
    const std::size_t start = text.find_first_not_of(" \n");
    if (start == std::string_view::npos) {
      return "";
    }
    text.remove_prefix(start);
    const std::size_t equals = text.find("=\"");
    const std::size_t close = equals == std::string_view::npos ? equals : text.find('"', equals + 2);
    if (close == std::string_view::npos || !is_name(text.substr(0, equals)) ||
        !names.insert(text.substr(0, equals)).second) {
      return "attributes: " + std::string(text);
    }
    if (std::string wrong = wrong_with_text(text.substr(equals + 2, close - equals - 2)); !wrong.empty()) {
      return wrong;
    }
    text.remove_prefix(close + 1);
  }
}

}  // namespace well_formed_parts

/// "" or what is wrong.
inline std::string not_well_formed(std::string_view text) {
  namespace parts = well_formed_parts;
  if (text.starts_with("<!DOCTYPE html>")) {
    text.remove_prefix(15);
  }
  std::vector<std::string> open;
  while (!text.empty()) {
    const std::size_t tag = text.find('<');
    if (std::string wrong = parts::wrong_with_text(text.substr(0, tag)); !wrong.empty()) {
      return wrong;
    }
    if (tag == std::string_view::npos) {
      break;
    }
    const std::size_t end = text.find('>', tag);
    if (end == std::string_view::npos) {
      return "a tag that does not end";
    }
    std::string_view inside = text.substr(tag + 1, end - tag - 1);
    text.remove_prefix(end + 1);
    if (inside.starts_with("/")) {
      if (open.empty() || open.back() != inside.substr(1)) {
        return "</" + std::string(inside.substr(1)) + "> closes " + (open.empty() ? "nothing" : open.back());
      }
      open.pop_back();
      continue;
    }
    const bool closes_itself = inside.ends_with("/");
    inside = closes_itself ? inside.substr(0, inside.size() - 1) : inside;
    const std::string_view name = inside.substr(0, inside.find_first_of(" \n"));
    if (!parts::is_name(name)) {
      return "tag: " + std::string(inside);
    }
    if (std::string wrong = parts::wrong_with_attributes(inside.substr(name.size())); !wrong.empty()) {
      return wrong;
    }
    if (!closes_itself) {
      open.emplace_back(name);
    }
  }
  return open.empty() ? "" : open.back() + " is not closed";
}

}  // namespace kneepoint::testing_support
