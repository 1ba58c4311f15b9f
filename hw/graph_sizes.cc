// CUDA graphs: for which batch sizes vLLM captures one, and what a batch is
// padded to (spec of vLLM 0.32.0, V2 runner, default level FULL_AND_PIECEWISE).
//
//     capture sizes   1, 2, 4, then 8 .. 248 by 8, then 256 .. max by 16
//     max             min(2 max_num_seqs (1 + k), 512 (1024 on data-centre Blackwell), batched tokens)
//
// with k drafts; performance_mode=interactivity adds all of 1 .. 32. A batch of
// decodes only (1 + k tokens each) replays one FULL graph; any other batch up to
// max runs in PIECEWISE graphs; above max nothing is captured and nothing is padded.
#include <algorithm>

#include "hw/deployment.h"

namespace kneepoint::hw {
namespace {

void insert_sorted(std::vector<std::int64_t>& sizes, std::int64_t size) {
  const auto place = std::ranges::lower_bound(sizes, size);
  if (place == sizes.end() || *place != size) {
    sizes.insert(place, size);
  }
}

// 1, 2, 4, 8 .. 248 by 8, 256 .. by 16, each times `stride`, as far as <= most.
std::vector<std::int64_t> stepped_sizes(std::int64_t stride, std::int64_t most) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size * stride <= most; size += size < 4     ? size
                                                             : size == 4  ? 4
                                                             : size < 256 ? 8
                                                                          : 16) {
    sizes.push_back(size * stride);
  }
  return sizes;
}

std::vector<std::int64_t> capture_sizes(const Deployment& d) {
  const std::int64_t per_request = 1 + d.num_speculative_tokens;
  const std::int64_t ceiling = d.gpu.data_centre_blackwell ? 1024 : 512;
  const std::int64_t most = std::min({d.max_num_seqs * per_request * 2, ceiling, d.max_num_batched_tokens});
  std::vector<std::int64_t> sizes = stepped_sizes(1, most);
  if (d.capture_every_small_batch) {
    for (std::int64_t size = 1; size <= std::min<std::int64_t>(32, most); ++size) {
      insert_sorted(sizes, size);
    }
  }
  if (d.max_num_batched_tokens <= most) {
    insert_sorted(sizes, d.max_num_batched_tokens);
  }
  if (per_request == 1) {
    if (d.max_num_seqs <= most) {
      insert_sorted(sizes, d.max_num_seqs);
    }
    return sizes;
  }
  for (const std::int64_t size : stepped_sizes(per_request, most)) {
    insert_sorted(sizes, size);
  }
  if (d.max_num_seqs * per_request <= most) {
    insert_sorted(sizes, d.max_num_seqs * per_request);
  }
  return sizes;
}

}  // namespace

GraphSizes::GraphSizes(const Deployment& deployment) {
  if (deployment.enforce_eager) {
    return;
  }
  piecewise_ = capture_sizes(deployment);
  if (piecewise_.empty()) {
    return;
  }
  const std::int64_t per_request = 1 + deployment.num_speculative_tokens;
  const std::int64_t most = std::min(deployment.max_num_seqs * per_request, piecewise_.back());
  for (const std::int64_t size : piecewise_) {
    const std::int64_t whole_requests = (size + per_request - 1) / per_request * per_request;
    if (whole_requests <= most) {
      insert_sorted(full_, whole_requests);
    }
  }
}

GraphChoice GraphSizes::choose(std::int64_t num_tokens, bool uniform_decode) const {
  if (uniform_decode) {
    const auto full = std::ranges::lower_bound(full_, num_tokens);
    if (full != full_.end()) {
      return {GraphMode::kFull, *full};
    }
  }
  const auto piecewise = std::ranges::lower_bound(piecewise_, num_tokens);
  if (piecewise != piecewise_.end()) {
    return {GraphMode::kPiecewise, *piecewise};
  }
  return {GraphMode::kNone, num_tokens};
}

}  // namespace kneepoint::hw
