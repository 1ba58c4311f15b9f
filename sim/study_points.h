// A study file as numbered points.
//
// Each of list, grid, zip and seeds is a dimension; a point picks one entry of
// each, and its number is the picks written as digits, the last dimension's the
// fastest. With a grid of 3 rates, one of 2 models and 5 seeds, point 17 is
//
//     17 = (1 * 2 + 1) * 5 + 2: the second rate, the second model, the third seed
//
// No option varies in two dimensions and no dimension has an entry twice, so no
// two points are the same.
//
// What a study is called by is its identity: a hash of everything that decides
// the results, input files by content. A results folder bears it, and records of
// another study are never mixed in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/report.h"
#include "sim/run_config.pb.h"
#include "sim/study.pb.h"
#include "sim/study_axes.h"

namespace kneepoint::sim {

class StudyPoints {
 public:
  /// Reads and checks `file`. Throws UsageError for what is not a study, an
  /// unknown option or a value that does not parse, SpecError and TraceError for
  /// inputs that cannot be read.
  explicit StudyPoints(const std::string& file);

  [[nodiscard]] std::int64_t size() const { return size_; }
  /// What is asked for at point `index`.
  [[nodiscard]] pb::RunConfig point(std::int64_t index) const;

  /// Options that vary, in the order of dimensions.
  [[nodiscard]] const std::vector<std::string>& options() const { return options_; }
  /// The varied options of `point` as a JSON object, files by name only.
  [[nodiscard]] std::string settings_json(const pb::RunConfig& point) const;

  [[nodiscard]] const std::string& title() const { return study_.title(); }
  [[nodiscard]] const std::vector<InputFile>& inputs() const { return inputs_; }
  /// The study file again, files by name only.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] const std::string& identity() const { return identity_; }

 private:
  void make_dimensions();
  void add_dimension(StudyDimension dimension);
  void count_points();
  void check_entries() const;
  void read_inputs();
  void make_identity();

  std::string file_;
  pb::Study study_;
  std::vector<StudyDimension> dimensions_;
  std::vector<std::string> options_;
  std::vector<InputFile> inputs_;  // Each file once.
  std::string identity_;
  std::int64_t size_ = 1;
};

}  // namespace kneepoint::sim
