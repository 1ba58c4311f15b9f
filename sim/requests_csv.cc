#include "sim/requests_csv.h"

#include <fmt/format.h>

#include <iterator>

namespace kneepoint::sim {
namespace {

void append_seconds(std::string& line, SimTime time) {
  if (time != kNever) {
    const std::int64_t ns = time.time_since_epoch().count();
    fmt::format_to(std::back_inserter(line), "{}.{:09}", ns / 1'000'000'000, ns % 1'000'000'000);
  }
  line += ',';
}

}  // namespace

RequestsCsv::RequestsCsv(OutputFile& file) : file_(file) {
  file_.write(
      "index,arrival_s,sent_s,queued_s,scheduled_s,first_token_s,last_token_s,"
      "prompt_tokens,output_tokens,cached_tokens,preemptions,end\n");
}

void RequestsCsv::on_request_end(const RequestRecord& request) {
  line_.clear();
  fmt::format_to(std::back_inserter(line_), "{},", request.index);
  for (const SimTime time : {request.arrival, request.sent, request.queued, request.scheduled,
                             request.first_token, request.last_token}) {
    append_seconds(line_, time);
  }
  fmt::format_to(std::back_inserter(line_), "{},{},{},{},{}\n", request.prompt_tokens, request.output_tokens,
                 request.cached_tokens, request.preemptions, request_end_name(request.end));
  file_.write(line_);
}

std::string ttft_cdf_csv(const std::vector<double>& quantiles_ms) {
  std::string text = "quantile,ttft_ms\n";
  for (std::size_t i = 0; i < quantiles_ms.size(); ++i) {
    const double quantile = static_cast<double>(i) / static_cast<double>(quantiles_ms.size() - 1);
    fmt::format_to(std::back_inserter(text), "{:.3f},{:.6f}\n", quantile, quantiles_ms[i]);
  }
  return text;
}

}  // namespace kneepoint::sim
