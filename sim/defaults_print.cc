// A resolved run as a run config file: --print-config.
//
// Every field that has a default gets the value it came to. Not so the number of
// KV blocks, which follows from the other fields: a file that pinned it would
// give the wrong capacity as soon as somebody changes -tp in it. It stands in the
// comments.
#include <google/protobuf/text_format.h>

#include <string>

#include "sim/options.h"

namespace kneepoint::sim {
namespace {

void print_deployment(const RunConfig& config, pb::RunConfig& p) {
  const hw::Deployment& d = config.deployment;
  p.set_model(config.model_name);
  p.set_tensor_parallel_size(d.tensor_parallel_size);
  p.set_pipeline_parallel_size(d.pipeline_parallel_size);
  p.set_enable_expert_parallel(d.enable_expert_parallel);
  if (!config.server_file.empty()) {
    return;
  }
  p.set_gpu(config.gpu_name);
  p.set_dtype(config.dtype);
  p.set_quantization(config.quantization);
  p.set_kv_cache_dtype(config.kv_cache_dtype);
  p.set_gpu_memory_utilization(d.gpu_memory_utilization);
  p.set_subtract_cuda_graphs(d.subtract_cuda_graphs);
  p.set_enforce_eager(d.enforce_eager);
  p.clear_optimization_level();  // Came to enforce_eager.
}

void print_scheduler(const RunConfig& config, pb::RunConfig& p) {
  const engine::SchedulerConfig& e = config.engine;
  p.set_scheduler(config.scheduler);
  p.set_block_size(e.block_size);
  p.set_enable_prefix_caching(e.enable_prefix_caching);
  p.set_prefix_cache_retention_interval(e.prefix_cache_retention_interval.value_or(-1));
  p.set_max_model_len(e.max_model_len);
  p.set_max_num_seqs(e.max_num_seqs);
  p.set_max_num_batched_tokens(e.max_num_batched_tokens);
  if (e.max_num_scheduled_tokens) {
    p.set_max_num_scheduled_tokens(*e.max_num_scheduled_tokens);
  }
  if (e.max_num_active_seqs) {
    p.set_max_num_active_seqs(*e.max_num_active_seqs);
  }
  p.set_enable_chunked_prefill(e.enable_chunked_prefill);
  p.set_long_prefill_token_threshold(e.long_prefill_token_threshold);
  p.set_long_prefill_token_threshold_adaptive(e.long_prefill_token_threshold_adaptive);
  p.set_prefill_schedule_interval(e.prefill_schedule_interval);
  p.set_scheduling_policy(e.policy == engine::SchedulingPolicy::kFcfs ? "fcfs" : "priority");
  p.set_async_scheduling(e.async_scheduling);
  p.set_use_v2_model_runner(e.use_v2_model_runner);
  p.set_watermark(e.watermark);
  p.set_scheduler_reserve_full_isl(e.scheduler_reserve_full_isl);
  p.set_max_loras(e.max_loras);
  p.set_performance_mode(config.deployment.capture_every_small_batch ? "interactivity" : "balanced");
}

}  // namespace

pb::RunConfig as_proto(const RunConfig& config, const pb::RunConfig& asked) {
  pb::RunConfig p = asked;
  print_deployment(config, p);
  print_scheduler(config, p);
  p.set_sim_seed(config.seed);
  p.set_strict(config.strict);
  p.set_format(config.report.format == OutputFormat::kJson ? "json" : "table");
  p.set_save_detailed(config.report.save_detailed);
  p.set_plain_steps(config.plain_steps);
  p.set_requests_csv(config.report.requests_csv);
  p.set_report(config.report.page);
  return p;
}

std::string as_text(const pb::RunConfig& config) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(config, &text);
  return "# proto-file: sim/run_config.proto\n# proto-message: kneepoint.sim.pb.RunConfig\n" + text;
}

}  // namespace kneepoint::sim
