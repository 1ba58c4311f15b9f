// Records of a study as a table for papers.
#pragma once

#include <string>
#include <vector>

namespace kneepoint::sim {

/// Column names: point, the varied options, status, figures with their units, reason.
[[nodiscard]] std::string study_csv_header(const std::vector<std::string>& options);
/// One record (an object, unsealed or not) as a line. What it does not have is empty.
[[nodiscard]] std::string study_csv_line(const std::vector<std::string>& options, const std::string& record);

}  // namespace kneepoint::sim
