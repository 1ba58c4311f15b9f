// The table itself: the flags of `vllm serve` (0.32) that people paste, and ours.
//
// A flag's class is a statement about this simulator, not about vLLM: "without
// influence" means that no decision and no time of a text-generation server
// changes with it.
#include <algorithm>
#include <array>

#include "sim/vllm_flags.h"

namespace kneepoint::sim {
namespace {

using enum FlagValue;

constexpr Flag kWorkload[] = {
    {"trace", kOne, "the workload, a .pb file (`traces generate`, `traces convert`)"},
    {"request-rate", kOne, "new arrival times, requests per second, as `vllm bench serve`; inf: all at once"},
    {"burstiness", kOne, "of these arrivals: gamma shape, 1 is Poisson (default)"},
    {"max-concurrency", kOne, "requests in flight at most; others wait at the client"},
    {"client-timeout", kOne, "seconds until a client gives up; aborts and counts as failed"},
    {"strict", kNone, "a request the server would refuse ends the run with exit 2"},
    {"sim-seed", kOne, "seed of every random stream; default 0"},
    {"max-sim-time", kOne, "stop after so many simulated seconds: partial results, exit status 3"},
    {"max-requests", kOne, "stop when so many requests are over: partial results, exit status 3"},
    {"max-wall-time", kOne, "stop after so many seconds of your time: partial results, exit status 3"},
};
constexpr Flag kMachine[] = {
    {"gpu", kOne, "h100 (default), h200, l40s, a100, rtx-pro-6000, or a .textproto"},
    {"rates", kOne, "fitted rates of the GPU (.textproto) instead of the bundled ones"},
    {"server", kOne, "a measured server (.textproto of `calibrate fit-steps`) instead of a GPU"},
    {"scheduler", kOne, "vllm-v1 (default), vllm-v0, sarathi, orca"},
    {"orca-reserve", kOne, "orca: room per answer: max (default), pow2, oracle"},
    {"preemption-mode", kOne, "vllm-v0: recompute (default) or swap"},
    {"swap-space", kOne, "vllm-v0 with swap: GiB of host memory for blocks; default 4"},
    {"use-v2-model-runner", kNone, "as VLLM_USE_V2_MODEL_RUNNER (default on)"},
    {"subtract-cuda-graphs", kNone, "as VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS (default on)"},
};
constexpr Flag kResults[] = {
    {"goodput", kMany, "limits in ms a good request meets: ttft:500 tpot:50 e2el:9000"},
    {"out", kOne, "folder for result.json, report.html, requests.csv and checksums.sha256"},
    {"format", kOne, "table (default) or json on stdout"},
    {"save-detailed", kNone, "per-request arrays in result.json"},
    {"requests-csv", kNone, "write requests.csv (default; --no-requests-csv leaves it out)"},
    {"report", kNone, "write report.html and the CSVs behind it (default with --out; --no-report leaves them out)"},
    {"plots", kNone, "with --out: the same figures by gnuplot, .gp, .svg and .pdf"},
    {"timeline", kOne, "write a Perfetto trace of steps and requests, to open in ui.perfetto.dev"},
    {"plain-steps", kNone, "walk every running request in every step: slow, same results"},
    {"step-log", kOne, "write vLLM's iteration log lines to this file"},
};
constexpr Flag kCommand[] = {
    {"run-config", kOne, "a .textproto with these flags as fields; flags given here win"},
    {"print-config", kNone, "print the resolved configuration, which reproduces the run, and stop"},
    {"list-schedulers", kNone, "list the schedulers and stop"},
    {"help", kNone, "this text", "-h"},
    {"version", kNone, "version", "-v"},
};

constexpr Flag kModel[] = {
    {"model", kOne, "bundled name, Hugging Face id, or path of a config.json; default llama-3.1-8b"},
    {"dtype", kOne, "auto (bfloat16), bfloat16, float16"},
    {"quantization", kOne, "fp8, awq, gptq, ...; default: the model's own", "-q"},
    {"max-model-len", kSize, "context; default the model's; -1 or auto: the largest that fits"},
    {"tensor-parallel-size", kOne, "GPUs that share each layer", "-tp"},
    {"pipeline-parallel-size", kOne, "stages of layers", "-pp"},
    {"enable-expert-parallel", kNone, "spread experts over the GPUs", "-ep"},
    {"enforce-eager", kNone, "no compilation, no CUDA graphs"},
    {"optimization-level", kOne, "2 (default), 3 (the same), 0 (as --enforce-eager)", "-O"},
    {"performance-mode", kOne, "balanced (default), throughput (limits x 2), interactivity (more CUDA graphs)"},
    {"speculative-config", kJson, "method, num_speculative_tokens, synthetic_acceptance_rates, ...", "-sc"},
};
constexpr Flag kCache[] = {
    {"gpu-memory-utilization", kOne, "share of GPU memory the server may use; default 0.92"},
    {"kv-cache-dtype", kOne, "auto (default: as --dtype), bfloat16, float16, fp8"},
    {"kv-cache-memory-bytes", kSize, "KV cache size per GPU instead of what is left"},
    {"num-gpu-blocks-override", kOne, "number of KV blocks instead of vLLM's sizing"},
    {"block-size", kOne, "tokens per KV block; default 16"},
    {"enable-prefix-caching", kNone, "share KV blocks of equal prefixes (default)"},
    {"prefix-cache-retention-interval", kOne,
     "sliding-window models: tokens between kept blocks; None: keep all"},
};
constexpr Flag kScheduler[] = {
    {"max-num-batched-tokens", kSize, "tokens per step at most"},
    {"max-num-scheduled-tokens", kSize, "tokens scheduled per step at most, if fewer"},
    {"max-num-seqs", kOne, "requests running at most"},
    {"max-num-active-seqs", kOne, "requests admitted at most, if fewer"},
    {"enable-chunked-prefill", kNone, "prompts in chunks (default)"},
    {"long-prefill-token-threshold", kOne, "tokens of one prompt per step at most; 0: no limit"},
    {"long-prefill-token-threshold-adaptive", kNone, "raise it when few requests are known"},
    {"prefill-schedule-interval", kOne, "prefills only every so many steps"},
    {"scheduling-policy", kOne, "fcfs (default) or priority"},
    {"async-scheduling", kNone, "plan a step while the one before runs (default where vLLM does)"},
    {"watermark", kOne, "share of KV blocks kept free at admission; default 0"},
    {"scheduler-reserve-full-isl", kNone, "admit only if the whole known sequence fits (default)"},
    {"max-loras", kOne, "different adapters in one step at most; default 1"},
    {"max-num-queued-reqs", kOne, "refuse (HTTP 503) beyond so many unfinished requests"},
    {"max-num-queued-tokens", kOne, "refuse while so many prompt tokens wait for a first output"},
};

// Without influence, by what follows the name.
constexpr Flag kPlainOnes[] = {{"host"},
                               {"port"},
                               {"uds"},
                               {"root-path"},
                               {"uvicorn-log-level"},
                               {"log-config-file"},
                               {"max-log-len"},
                               {"disable-access-log-for-endpoints"},
                               {"allowed-origins"},
                               {"allowed-methods"},
                               {"allowed-headers"},
                               {"ssl-keyfile"},
                               {"ssl-certfile"},
                               {"ssl-ca-certs"},
                               {"ssl-cert-reqs"},
                               {"ssl-ciphers"},
                               {"middleware"},
                               {"h11-max-incomplete-event-size"},
                               {"h11-max-header-count"},
                               {"shutdown-timeout"},
                               {"chat-template"},
                               {"chat-template-content-format"},
                               {"default-chat-template-kwargs", kJson},
                               {"response-role"},
                               {"tool-call-parser"},
                               {"tool-parser-plugin"},
                               {"tool-server"},
                               {"reasoning-parser"},
                               {"reasoning-parser-plugin"},
                               {"structured-outputs-config", kJson},
                               {"guided-decoding-backend"},
                               {"generation-config"},
                               {"override-generation-config", kJson},
                               {"max-logprobs"},
                               {"logprobs-mode"},
                               {"tokenizer"},
                               {"tokenizer-mode"},
                               {"tokenizer-revision"},
                               {"revision"},
                               {"code-revision"},
                               {"hf-token", kOptional},
                               {"hf-config-path"},
                               {"config-format"},
                               {"io-processor-plugin"},
                               {"allowed-local-media-path"},
                               {"download-dir"},
                               {"load-format"},
                               {"model-loader-extra-config", kJson},
                               {"safetensors-load-strategy"},
                               {"safetensors-prefetch-block-size", kSize},
                               {"pt-load-map-location"},
                               {"max-parallel-loading-workers"},
                               {"seed"},
                               {"master-addr"},
                               {"master-port"},
                               {"node-rank"},
                               {"prefix-caching-hash-algo"},
                               {"otlp-traces-endpoint"},
                               {"show-hidden-metrics-for-version"},
                               {"kv-cache-metrics-sample"},
                               {"kv-events-config", kJson},
                               {"profiler-config", kJson},
                               {"gdn-prefill-backend"},
                               {"kda-prefill-backend"},
                               {"limit-mm-per-prompt", kJson},
                               {"media-io-kwargs", kJson},
                               {"mm-processor-kwargs", kJson},
                               {"mm-processor-cache-gb"},
                               {"mm-processor-cache-type"},
                               {"mm-encoder-tp-mode"},
                               {"video-pruning-rate"},
                               {"max-lora-rank"},
                               {"lora-dtype"},
                               {"max-cpu-loras"},
                               {"expert-placement-strategy"}};
constexpr Flag kPlainLists[] = {{"api-key"},         {"served-model-name"},     {"collect-detailed-traces"},
                                {"ignore-patterns"}, {"allowed-media-domains"}, {"lora-modules"}};
constexpr Flag kPlainSwitches[] = {{"trust-remote-code"},
                                   {"disable-log-stats"},
                                   {"aggregate-engine-logging"},
                                   {"disable-log-requests"},
                                   {"enable-log-requests"},
                                   {"enable-log-outputs"},
                                   {"enable-log-deltas"},
                                   {"log-error-stack"},
                                   {"enable-logging-iteration-details"},
                                   {"disable-uvicorn-access-log"},
                                   {"disable-fastapi-docs"},
                                   {"enable-offline-docs"},
                                   {"allow-credentials"},
                                   {"enable-ssl-refresh"},
                                   {"enable-auto-tool-choice"},
                                   {"exclude-tools-when-tool-choice-none"},
                                   {"trust-request-chat-template"},
                                   {"return-tokens-as-token-ids"},
                                   {"enable-prompt-tokens-details"},
                                   {"enable-server-load-tracking"},
                                   {"enable-request-id-headers"},
                                   {"enable-force-include-usage"},
                                   {"enable-tokenizer-info-endpoint"},
                                   {"enable-prompt-embeds"},
                                   {"fail-on-environ-validation"},
                                   {"allow-deprecated-quantization"},
                                   {"use-tqdm-on-load"},
                                   {"kv-cache-metrics"},
                                   {"cudagraph-metrics"},
                                   {"enable-mfu-metrics"},
                                   {"enable-sleep-mode"},
                                   {"disable-chunked-mm-input"},
                                   {"interleave-mm-strings"},
                                   {"skip-mm-profiling"},
                                   {"enable-mm-embeds"},
                                   {"language-model-only"}};

constexpr Flag kRefused[] = {
    {"config", kOne, "a YAML file of options (give them as flags)"},
    {"grpc", kNone, "the gRPC front end"},
    {"headless", kNone, "a node without front end"},
    {"nnodes", kOne, "several nodes", "-n", "1"},
    {"api-server-count", kOne, "several API servers", "-asc", "1"},
    {"disable-frontend-multiprocessing", kNone, "front end and engine in one process"},
    {"stream-interval", kOne, "buffered streaming", "", "1"},
    {"skip-tokenizer-init", kNone, "a front end without tokenizer"},
    {"tokens-only", kNone, "a front end without tokenizer"},
    {"logits-processors", kMany, "the time of logits processors"},
    {"data-parallel-size", kOne, "data parallelism", "-dp", "1"},
    {"data-parallel-size-local", kOne, "data parallelism", "-dpl", "1"},
    {"data-parallel-rank", kOne, "data parallelism", "-dpn", "0"},
    {"data-parallel-start-rank", kOne, "data parallelism", "-dpr", "0"},
    {"data-parallel-address", kOne, "data parallelism", "-dpa"},
    {"data-parallel-rpc-port", kOne, "data parallelism", "-dpp"},
    {"data-parallel-backend", kOne, "data parallelism", "-dpb", "mp"},
    {"data-parallel-hybrid-lb", kNone, "data parallelism", "-dph"},
    {"data-parallel-external-lb", kNone, "data parallelism", "-dpe"},
    {"decode-context-parallel-size", kOne, "context parallelism", "-dcp", "1"},
    {"prefill-context-parallel-size", kOne, "context parallelism", "-pcp", "1"},
    {"distributed-executor-backend", kOne, "an executor other than mp", "", "mp|uni"},
    {"disable-custom-all-reduce", kNone, "NCCL instead of custom all-reduce"},
    {"worker-cls", kOne, "a worker class of your own", "", "auto"},
    {"worker-extension-cls", kOne, "a worker class of your own"},
    {"enable-dbo", kNone, "dual batch overlap"},
    {"enable-eplb", kNone, "expert load balancing"},
    {"eplb-config", kJson, "expert load balancing"},
    {"all2all-backend", kOne, "a choice of all-to-all kernels"},
    {"moe-backend", kOne, "a choice of expert kernels", "", "auto"},
    {"attention-backend", kOne, "attention kernels other than FlashAttention", "", "FLASH_ATTN|auto"},
    {"attention-config", kJson, "attention kernels other than the default", "-ac"},
    {"kernel-config", kJson, "kernels other than the default"},
    {"disable-cascade-attn", kNone, "cascade attention", "", "true"},
    {"compilation-config", kJson, "compilation other than level 2 with its CUDA graphs", "-cc"},
    {"cudagraph-capture-sizes", kMany, "CUDA graph sizes other than the default"},
    {"max-cudagraph-capture-size", kOne, "CUDA graph sizes other than the default"},
    {"enable-layerwise-nvtx-tracing", kNone, "tracing, which slows each layer"},
    {"kv-transfer-config", kJson, "KV connectors (disaggregated prefill, offload)"},
    {"ec-transfer-config", kJson, "encoder cache connectors"},
    {"kv-offloading-size", kOne, "KV offload to host memory"},
    {"kv-offloading-backend", kOne, "KV offload to host memory"},
    {"cpu-offload-gb", kOne, "weights in host memory", "", "0"},
    {"calculate-kv-scales", kNone, "KV scales calculated at run time"},
    {"kv-cache-dtype-skip-layers", kMany, "a KV cache of mixed types"},
    {"kv-sharing-fast-prefill", kNone, "KV sharing between layers"},
    {"disable-hybrid-kv-cache-manager", kNone, "KV groups of several kinds", "", "true"},
    {"disable-sliding-window", kNone, "window attention switched off"},
    {"hf-overrides", kJson, "a changed config.json (edit a copy and give its path as model)"},
    {"model-impl", kOne, "other model code than vLLM's own", "", "auto|vllm"},
    {"runner", kOne, "pooling models", "", "auto|generate"},
    {"convert", kOne, "pooling models", "", "auto|none"},
    {"pooler-config", kJson, "pooling models"},
    {"mm-encoder-only", kNone, "an encoder without language model"},
    {"enable-return-routed-experts", kNone, "the time to return routed experts"},
    {"mamba-cache-dtype", kOne, "Mamba layers", "", "auto"},
    {"mamba-ssm-cache-dtype", kOne, "Mamba layers", "", "auto"},
    {"mamba-block-size", kOne, "Mamba layers"},
    {"enable-lora", kNone,
     "time and memory of LoRA adapters (without it --max-loras still limits admission)"},
    {"fully-sharded-loras", kNone, "time and memory of LoRA adapters"},
    {"scheduler-cls", kOne, "a scheduler class of your own (--scheduler has ours)"},
    {"max-num-partial-prefills", kOne, "this option, which vLLM has dropped (#49244),", "", "1"},
    {"max-long-partial-prefills", kOne, "this option, which vLLM has dropped (#49244),", "", "1"},
    {"additional-config", kJson, "settings of other platforms"},
};

// The rows with their section and class, one after the other.
struct Section {
  std::string_view title;
  FlagClass group;
  std::span<const Flag> rows;
  FlagValue value = kOne;  // Of rows that say nothing.
};

constexpr Section kSections[] = {
    {"workload and clients", FlagClass::kOurs, kWorkload},
    {"machine and policy", FlagClass::kOurs, kMachine},
    {"results", FlagClass::kOurs, kResults},
    {"command", FlagClass::kOurs, kCommand},
    {"vLLM: model, GPUs, drafts", FlagClass::kModelled, kModel},
    {"vLLM: KV cache", FlagClass::kModelled, kCache},
    {"vLLM: scheduler and admission", FlagClass::kModelled, kScheduler},
    {"vLLM: taken, without influence on decisions and times", FlagClass::kNoInfluence, kPlainOnes},
    {"", FlagClass::kNoInfluence, kPlainLists, kMany},
    {"", FlagClass::kNoInfluence, kPlainSwitches, kNone},
    {"vLLM: with influence, not modelled yet: an error unless without effect", FlagClass::kNotModelled,
     kRefused},
};

constexpr std::size_t count_rows() {
  std::size_t count = 0;
  for (const Section& section : kSections) {
    count += section.rows.size();
  }
  return count;
}

constexpr auto kFlags = [] {
  std::array<Flag, count_rows()> flags;
  std::size_t next = 0;
  for (const Section& section : kSections) {
    for (Flag flag : section.rows) {
      flag.group = section.group;
      flag.section = section.title;
      flag.value = flag.value == kOne ? section.value : flag.value;
      flags[next++] = flag;
    }
  }
  return flags;
}();

constexpr EnvironmentVariable kEnvironment[] = {
    {"VLLM_USE_V2_MODEL_RUNNER", "use-v2-model-runner"},
    {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "subtract-cuda-graphs"},
    {"CUDA_VISIBLE_DEVICES", ""},
    {"HF_HOME", ""},
    {"HF_HUB_OFFLINE", ""},
    {"HF_TOKEN", ""},
    {"VLLM_API_KEY", ""},
    {"VLLM_CACHE_ROOT", ""},
    {"VLLM_CONFIGURE_LOGGING", ""},
    {"VLLM_DO_NOT_TRACK", ""},
    {"VLLM_HOST_IP", ""},
    {"VLLM_LOGGING_LEVEL", ""},
    {"VLLM_NO_USAGE_STATS", ""},
    {"VLLM_PORT", ""},
};

}  // namespace

std::span<const Flag> flags() {
  return kFlags;
}

std::span<const EnvironmentVariable> environment_variables() {
  return kEnvironment;
}

}  // namespace kneepoint::sim
