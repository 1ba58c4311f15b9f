// A configuration file in protobuf's text format: run configs, studies.
#pragma once

#include <string>

namespace google::protobuf {
class Message;
}

namespace kneepoint::sim {

/// Reads `file` into `message`. Throws UsageError opening with `what`, naming
/// line and column, for an unknown field with the closest known one.
void read_text_proto(const std::string& what, const std::string& file, google::protobuf::Message& message);

/// The same from text that was read already.
void parse_text_proto(const std::string& what, const std::string& text, google::protobuf::Message& message);

}  // namespace kneepoint::sim
