// The axes of a study file as lists of entries, each a piece of a run config.
//
// A value is written as a run config would have it, names without quotation
// marks: "8192", "true", "inf", "llama-3.1-8b"; the words of goodput with spaces
// between them. It is read by protobuf's own parser, so what a run config refuses
// is refused here.
#pragma once

#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "sim/run_config.pb.h"
#include "sim/study.pb.h"

namespace kneepoint::sim {

inline constexpr std::int64_t kMostStudyPoints = 10'000'000;

/// One dimension: its entries are laid over the base.
struct StudyDimension {
  std::string name;  ///< "grid request_rate", for messages.
  std::vector<pb::RunConfig> entries;
  pb::Seeds seeds;  ///< Counted instead of listed: there may be millions.

  [[nodiscard]] bool is_seeds() const { return seeds.count() > 0; }
  [[nodiscard]] std::int64_t size() const {
    return is_seeds() ? seeds.count() : static_cast<std::int64_t>(entries.size());
  }
};

/// Each throws UsageError, naming `file`. `kind` is what the axis stands under.
[[nodiscard]] StudyDimension axis_dimension(const std::string& file, const char* kind, const pb::Axis& axis);
[[nodiscard]] StudyDimension zip_dimension(const std::string& file, const pb::Zip& zip);
[[nodiscard]] StudyDimension seed_dimension(const std::string& file, const pb::Seeds& seeds);

/// Fields that are set.
[[nodiscard]] std::vector<const google::protobuf::FieldDescriptor*> fields_of(const pb::RunConfig& config);

}  // namespace kneepoint::sim
