// Reads and writes a measured server (hw/server.proto). This is where its units
// become SI.
#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/text_format.h>

#include <array>
#include <cmath>
#include <fstream>
#include <ostream>
#include <string>
#include <string_view>

#include "hw/measured_step.h"
#include "hw/server.pb.h"
#include "hw/spec_error.h"

namespace kneepoint::hw {

namespace {

namespace fs = std::filesystem;

// Keeps the first complaint of the text format parser, for one clear line.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (text_.empty()) text_ = fmt::format("line {}, column {}: {}", line + 1, column + 1, message);
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

struct Unit {
  std::string_view name;
  double seconds;
};
constexpr std::array kUnits{Unit{"s", 1.0}, Unit{"ms", 1e-3}, Unit{"us", 1e-6}, Unit{"ns", 1e-9},
                            Unit{"ps", 1e-12}};

Measured from_proto(const fs::path& path, const pb::Coefficient& coefficient, bool given, const char* field) {
  const auto refuse = [&](const std::string& why) {
    return SpecError(fmt::format("{}: {}: {}", path.string(), field, why));
  };
  if (!given) throw refuse("is missing; write the file with `calibrate fit-steps`");
  if (!std::isfinite(coefficient.value()) || coefficient.value() < 0) {
    throw refuse(fmt::format("value {} is negative or not finite", coefficient.value()));
  }
  if (!std::isfinite(coefficient.standard_error()) || coefficient.standard_error() < 0) {
    throw refuse("standard_error is negative or not finite");
  }
  if (coefficient.source().empty()) throw refuse("has no source");
  for (const Unit& unit : kUnits) {
    if (unit.name == coefficient.unit()) {
      return {coefficient.value() * unit.seconds, coefficient.standard_error() * unit.seconds,
              coefficient.source()};
    }
  }
  throw refuse(fmt::format("unit '{}' is unknown; use s, ms, us, ns or ps", coefficient.unit()));
}

void to_proto(const Measured& measured, std::string_view unit, pb::Coefficient& out) {
  double seconds = 1;
  for (const Unit& known : kUnits) seconds = known.name == unit ? known.seconds : seconds;
  // Seven digits: far below any standard error, and the file stays readable.
  const auto rounded = [&](double value) { return std::stod(fmt::format("{:.7g}", value / seconds)); };
  out.set_value(rounded(measured.value));
  out.set_unit(std::string(unit));
  out.set_standard_error(rounded(measured.standard_error));
  out.set_source(measured.source);
}

void read_step(const fs::path& path, const pb::MeasuredStep& step, MeasuredServer& server) {
  server.base_s = from_proto(path, step.base(), step.has_base(), "step.base");
  server.prefill_token_s =
      from_proto(path, step.prefill_token(), step.has_prefill_token(), "step.prefill_token");
  server.attention_pair_s =
      from_proto(path, step.attention_pair(), step.has_attention_pair(), "step.attention_pair");
  server.sequence_beyond_s =
      from_proto(path, step.sequence_beyond(), step.has_sequence_beyond(), "step.sequence_beyond");
  server.context_token_s =
      from_proto(path, step.context_token(), step.has_context_token(), "step.context_token");
  std::int64_t count_before = 0;
  double time_before = 0;
  for (const pb::SequencePoint& point : step.sequences()) {
    SequencePoint read{point.count(),
                       from_proto(path, point.time(), point.has_time(), "step.sequences.time")};
    if (read.count <= count_before || read.time_s.value < time_before) {
      throw SpecError(
          fmt::format("{}: step.sequences: counts must ascend and times must not fall (at count {})",
                      path.string(), read.count));
    }
    count_before = read.count;
    time_before = read.time_s.value;
    server.sequences.push_back(std::move(read));
  }
}

void read_rest(const fs::path& path, const pb::Server& proto, MeasuredServer& server) {
  const pb::MeasuredGap& gap = proto.gap();
  server.gap_base_s = from_proto(path, gap.base(), gap.has_base(), "gap.base");
  server.gap_per_output_s = from_proto(path, gap.per_output(), gap.has_per_output(), "gap.per_output");
  server.gap_with_prefill_s =
      from_proto(path, gap.with_prefill(), gap.has_with_prefill(), "gap.with_prefill");
  const pb::MeasuredFrontEnd& front = proto.front_end();
  server.arrival_s = from_proto(path, front.arrival(), front.has_arrival(), "front_end.arrival");
  server.output_s = from_proto(path, front.output(), front.has_output(), "front_end.output");
  server.output_per_request_s = from_proto(path, front.output_per_request(), front.has_output_per_request(),
                                           "front_end.output_per_request");
  server.turnaround_s = from_proto(path, front.turnaround(), front.has_turnaround(), "front_end.turnaround");
  server.max_prefill_tokens = proto.range().max_prefill_tokens();
  server.max_sequences = proto.range().max_sequences();
  server.max_context_sum = proto.range().max_context_sum();
  server.max_chunk_context = proto.range().max_chunk_context();
  for (const pb::Correlation& c : proto.correlations())
    server.correlations.push_back({c.a(), c.b(), c.value()});
  for (const pb::Residuals& r : proto.residuals()) {
    ResidualSummary summary;
    summary.of = r.of();
    summary.count = r.count();
    summary.mean = r.mean();
    summary.sd = r.sd();
    summary.p5 = r.p5();
    summary.p50 = r.p50();
    summary.p95 = r.p95();
    summary.p99 = r.p99();
    summary.skew = r.skew();
    summary.r_squared = r.r_squared();
    for (int i = 0; i < std::min(r.lag_size(), r.autocorrelation_size()); ++i) {
      summary.autocorrelation.emplace_back(r.lag(i), r.autocorrelation(i));
    }
    server.residuals.push_back(std::move(summary));
  }
  server.speed_sd_per_second = proto.speed_sd_per_second();
  server.speed_sd_per_run = proto.speed_sd_per_run();
  server.not_identified.assign(proto.not_identified().begin(), proto.not_identified().end());
}

void write_step(const MeasuredServer& server, pb::MeasuredStep& step) {
  to_proto(server.base_s, "ms", *step.mutable_base());
  to_proto(server.prefill_token_s, "us", *step.mutable_prefill_token());
  to_proto(server.attention_pair_s, "ns", *step.mutable_attention_pair());
  for (const SequencePoint& point : server.sequences) {
    pb::SequencePoint& out = *step.add_sequences();
    out.set_count(point.count);
    to_proto(point.time_s, "ms", *out.mutable_time());
  }
  to_proto(server.sequence_beyond_s, "us", *step.mutable_sequence_beyond());
  to_proto(server.context_token_s, "ns", *step.mutable_context_token());
}

double short_share(double value) {
  return std::stod(fmt::format("{:.4g}", value));
}

void write_residuals(const ResidualSummary& summary, pb::Residuals& out) {
  out.set_of(summary.of);
  out.set_count(summary.count);
  out.set_mean(short_share(summary.mean));
  out.set_sd(short_share(summary.sd));
  out.set_p5(short_share(summary.p5));
  out.set_p50(short_share(summary.p50));
  out.set_p95(short_share(summary.p95));
  out.set_p99(short_share(summary.p99));
  out.set_skew(short_share(summary.skew));
  out.set_r_squared(short_share(summary.r_squared));
  for (const auto& [lag, value] : summary.autocorrelation) {
    out.add_lag(lag);
    out.add_autocorrelation(short_share(value));
  }
}

}  // namespace

MeasuredServer load_server(const fs::path& path) {
  std::ifstream in(path);
  if (!in) throw SpecError(fmt::format("{}: cannot be read; is the path right?", path.string()));
  google::protobuf::io::IstreamInputStream stream(&in);
  google::protobuf::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  pb::Server proto;
  if (!parser.Parse(&stream, &proto)) {
    throw SpecError(
        fmt::format("{}: is no measured server (hw/server.proto): {}", path.string(), error.text()));
  }
  MeasuredServer server;
  server.model = proto.model();
  server.architecture = proto.architecture();
  server.machine = proto.machine();
  server.release = proto.release();
  server.source = proto.source();
  read_step(path, proto.step(), server);
  read_rest(path, proto, server);
  return server;
}

void write_server(const MeasuredServer& server, std::ostream& out) {
  pb::Server proto;
  proto.set_model(server.model);
  proto.set_architecture(server.architecture);
  proto.set_machine(server.machine);
  proto.set_release(server.release);
  proto.set_source(server.source);
  write_step(server, *proto.mutable_step());
  to_proto(server.gap_base_s, "ms", *proto.mutable_gap()->mutable_base());
  to_proto(server.gap_per_output_s, "us", *proto.mutable_gap()->mutable_per_output());
  to_proto(server.gap_with_prefill_s, "ms", *proto.mutable_gap()->mutable_with_prefill());
  to_proto(server.arrival_s, "ms", *proto.mutable_front_end()->mutable_arrival());
  to_proto(server.output_s, "ms", *proto.mutable_front_end()->mutable_output());
  to_proto(server.output_per_request_s, "us", *proto.mutable_front_end()->mutable_output_per_request());
  to_proto(server.turnaround_s, "ms", *proto.mutable_front_end()->mutable_turnaround());
  proto.mutable_range()->set_max_prefill_tokens(server.max_prefill_tokens);
  proto.mutable_range()->set_max_sequences(server.max_sequences);
  proto.mutable_range()->set_max_context_sum(server.max_context_sum);
  proto.mutable_range()->set_max_chunk_context(server.max_chunk_context);
  for (const NamedCorrelation& correlation : server.correlations) {
    pb::Correlation& entry = *proto.add_correlations();
    entry.set_a(correlation.a);
    entry.set_b(correlation.b);
    entry.set_value(short_share(correlation.value));
  }
  for (const ResidualSummary& summary : server.residuals) write_residuals(summary, *proto.add_residuals());
  proto.set_speed_sd_per_second(short_share(server.speed_sd_per_second));
  proto.set_speed_sd_per_run(short_share(server.speed_sd_per_run));
  for (const std::string& what : server.not_identified) proto.add_not_identified(what);
  std::string text;
  google::protobuf::TextFormat::PrintToString(proto, &text);
  out << text;
}

}  // namespace kneepoint::hw
