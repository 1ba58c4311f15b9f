#include "calibrate/microbench/cudnn_attention.h"

#if __has_include(<cudnn.h>)

#include <cudnn.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "calibrate/microbench/cuda_support.h"

namespace kneepoint::microbench {

struct CudnnAttention::Library {
  void* file = nullptr;
  cudnnHandle_t handle = nullptr;
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnGetVersion) get_version = nullptr;
  decltype(&cudnnGetErrorString) error_string = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;

  ~Library() {
    if (handle != nullptr) destroy(handle);
    if (file != nullptr) dlclose(file);
  }
  template <class Function>
  bool find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(file, name));
    return function != nullptr;
  }
  bool find_all() {
    return find("cudnnCreate", create) && find("cudnnDestroy", destroy) &&
           find("cudnnSetStream", set_stream) && find("cudnnGetVersion", get_version) &&
           find("cudnnGetErrorString", error_string) &&
           find("cudnnBackendCreateDescriptor", create_descriptor) &&
           find("cudnnBackendDestroyDescriptor", destroy_descriptor) &&
           find("cudnnBackendSetAttribute", set_attribute) &&
           find("cudnnBackendGetAttribute", get_attribute) && find("cudnnBackendFinalize", finalize) &&
           find("cudnnBackendExecute", execute);
  }
};

namespace {

// cuDNN cannot do this shape, or not in this way. Never leaves this file.
class Refused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Names of the tensors that have memory.
enum Id : std::int64_t {
  kQueries = 1,
  kKeys,
  kValues,
  kOutputs,
  kScale,
  kMinusInfinity,
  kOffset,
  kFirstVirtual = 100
};

using Dims = std::array<std::int64_t, 4>;

// A descriptor of the back end and its attributes.
template <class Library>
class Descriptor {
 public:
  Descriptor(const Library& cudnn, cudnnBackendDescriptorType_t type) : cudnn_(cudnn) {
    check(cudnn_.create_descriptor(type, &descriptor_), "create");
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { cudnn_.destroy_descriptor(descriptor_); }

  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    check(cudnn_.set_attribute(descriptor_, name, type, 1, &value), "attribute");
    return *this;
  }
  template <class T>
  Descriptor& set_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& values) {
    check(cudnn_.set_attribute(descriptor_, name, type, static_cast<std::int64_t>(values.size()),
                               values.data()),
          "attribute");
    return *this;
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& other) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other.descriptor_);
  }
  Descriptor& finish(const char* what) {
    check(cudnn_.finalize(descriptor_), what);
    return *this;
  }
  [[nodiscard]] cudnnBackendDescriptor_t get() const { return descriptor_; }

 private:
  void check(cudnnStatus_t status, const char* what) const {
    if (status != CUDNN_STATUS_SUCCESS) throw Refused(std::string(what) + ": " + cudnn_.error_string(status));
  }
  const Library& cudnn_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

// softmax(scale Q K^T, masked) V as a graph that cuDNN recognises: product, scale, mask
// by comparing a row's and a column's number, softmax in its five parts, product.
template <class Library>
class Builder {
 public:
  using Node = std::unique_ptr<Descriptor<Library>>;

  Builder(const Library& cudnn, const PrefillShape& s, cudnnDataType_t weights_type) : cudnn_(cudnn), s_(s) {
    const std::int64_t keys = s.tokens + s.computed;
    constexpr std::int64_t kDim = 128;
    const Dims score_dims{s.batch, s.heads, s.tokens, keys};
    const Dims row_dims{s.batch, s.heads, s.tokens, 1};
    auto& q = stored(kQueries, {s.batch, s.heads, s.tokens, kDim},
                     {s.tokens * s.heads * kDim, kDim, s.heads * kDim, 1});
    auto& k = stored(kKeys, {s.batch, s.kv_heads, kDim, keys},
                     {keys * s.kv_heads * kDim, kDim, 1, s.kv_heads * kDim});
    auto& v = stored(kValues, {s.batch, s.kv_heads, keys, kDim},
                     {keys * s.kv_heads * kDim, kDim, s.kv_heads * kDim, 1});
    auto& o = stored(kOutputs, {s.batch, s.heads, s.tokens, kDim},
                     {s.tokens * s.heads * kDim, kDim, s.heads * kDim, 1});
    auto& products = matmul(q, k, passing(score_dims, CUDNN_DATA_FLOAT));
    auto& scaled = pointwise(CUDNN_POINTWISE_MUL, products, &number(kScale, CUDNN_DATA_FLOAT), score_dims);
    auto* last_key = &index(scaled, 2, score_dims);
    if (s.computed > 0) {
      auto& offset = number(kOffset, CUDNN_DATA_INT32);
      last_key = &pointwise(CUDNN_POINTWISE_ADD, *last_key, &offset, score_dims, CUDNN_DATA_INT32);
    }
    auto& columns = index(scaled, 3, score_dims);
    auto& seen = pointwise(CUDNN_POINTWISE_CMP_GE, *last_key, &columns, score_dims, CUDNN_DATA_BOOLEAN);
    auto& masked = pointwise(CUDNN_POINTWISE_BINARY_SELECT, scaled, &number(kMinusInfinity, CUDNN_DATA_FLOAT),
                             score_dims, CUDNN_DATA_FLOAT, &seen);
    auto& largest = reduce(CUDNN_REDUCE_TENSOR_MAX, masked, row_dims);
    auto& below = pointwise(CUDNN_POINTWISE_SUB, masked, &largest, score_dims);
    auto& powers = pointwise(CUDNN_POINTWISE_EXP, below, nullptr, score_dims);
    auto& sums = reduce(CUDNN_REDUCE_TENSOR_ADD, powers, row_dims);
    auto& weights = pointwise(CUDNN_POINTWISE_DIV, powers, &sums, score_dims, weights_type);
    matmul(weights, v, o);
  }

  [[nodiscard]] std::vector<cudnnBackendDescriptor_t> operations() const {
    std::vector<cudnnBackendDescriptor_t> all;
    for (const Node& operation : operations_) all.push_back(operation->get());
    return all;
  }

 private:
  using Desc = Descriptor<Library>;

  Desc& keep(std::vector<Node>& list, cudnnBackendDescriptorType_t type) {
    list.push_back(std::make_unique<Desc>(cudnn_, type));
    return *list.back();
  }
  Desc& tensor(std::int64_t id, cudnnDataType_t type, const Dims& dims, const Dims& strides, bool is_virtual,
               bool by_value) {
    constexpr std::int64_t kAlignment = 16;
    Desc& desc = keep(parts_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    desc.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id)
        .set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type)
        .set_all(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims)
        .set_all(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides)
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kAlignment)
        .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual)
        .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
    return desc.finish("tensor");
  }
  Desc& stored(std::int64_t id, const Dims& dims, const Dims& strides) {
    return tensor(id, CUDNN_DATA_BFLOAT16, dims, strides, false, false);
  }
  Desc& number(std::int64_t id, cudnnDataType_t type) {
    return tensor(id, type, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
  }
  // A result that goes to the next operation and never to memory.
  Desc& passing(const Dims& d, cudnnDataType_t type) {
    return tensor(next_id_++, type, d, {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}, true, false);
  }
  Desc& matmul(const Desc& a, const Desc& b, Desc& c) {
    Desc& how = keep(parts_, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT).finish("matmul");
    keep(operations_, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
        .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a)
        .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)
        .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c)
        .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how)
        .finish("matmul operation");
    return c;
  }
  Desc& pointwise(cudnnPointwiseMode_t mode, const Desc& x, const Desc* b, const Dims& dims,
                  cudnnDataType_t type = CUDNN_DATA_FLOAT, const Desc* mask = nullptr) {
    Desc& how = keep(parts_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    const bool whole = type == CUDNN_DATA_INT32 || type == CUDNN_DATA_BOOLEAN;
    how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode)
        .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, whole ? type : CUDNN_DATA_FLOAT)
        .finish("pointwise");
    return apply(how, x, b, mask, passing(dims, type));
  }
  Desc& index(const Desc& x, std::int64_t axis, const Dims& dims) {
    Desc& how = keep(parts_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_GEN_INDEX)
        .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_INT32)
        .set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis)
        .finish("index");
    return apply(how, x, nullptr, nullptr, passing(dims, CUDNN_DATA_INT32));
  }
  Desc& apply(const Desc& how, const Desc& x, const Desc* b, const Desc* mask, Desc& y) {
    Desc& operation = keep(operations_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    if (b != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
    if (mask != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *mask);
    operation.finish("pointwise operation");
    return y;
  }
  Desc& reduce(cudnnReduceTensorOp_t op, const Desc& x, const Dims& dims) {
    Desc& how = keep(parts_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, op)
        .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
        .finish("reduction");
    Desc& y = passing(dims, CUDNN_DATA_FLOAT);
    keep(operations_, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how)
        .finish("reduction operation");
    return y;
  }

  const Library& cudnn_;
  PrefillShape s_;
  std::vector<Node> parts_;
  std::vector<Node> operations_;
  std::int64_t next_id_ = kFirstVirtual;
};

template <class Library>
struct ReadyPlan final : CudnnAttention::Plan {
  ReadyPlan(const Library& cudnn, const PrefillShape& shape, cudnnDataType_t weights_type)
      : builder(cudnn, shape, weights_type),
        graph(cudnn, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR),
        heuristic(cudnn, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {}
  // All that the plan was made of lives as long as it does.
  Builder<Library> builder;
  Descriptor<Library> graph;
  Descriptor<Library> heuristic;
  std::vector<std::unique_ptr<Descriptor<Library>>> configs;
  std::unique_ptr<Descriptor<Library>> plan;
  void* workspace = nullptr;
  float scale = 0;
  float minus_infinity = -HUGE_VALF;
  std::int32_t offset = 0;
};

// The heuristic's engine configurations, best first.
template <class Library>
std::int64_t ask_heuristic(const Library& cudnn, ReadyPlan<Library>& ready) {
  ready.graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, cudnn.handle)
      .set_all(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, ready.builder.operations())
      .finish("operation graph");
  ready.heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, ready.graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A)
      .finish("heuristic");
  constexpr std::int64_t kMost = 8;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < kMost; ++i) {
    ready.configs.push_back(std::make_unique<Descriptor<Library>>(cudnn, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    raw.push_back(ready.configs.back()->get());
  }
  std::int64_t count = 0;
  const cudnnStatus_t status = cudnn.get_attribute(ready.heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, kMost, &count, raw.data());
  if (status != CUDNN_STATUS_SUCCESS) throw Refused(std::string("heuristic: ") + cudnn.error_string(status));
  return std::min(count, kMost);
}

// The first configuration that makes a plan.
template <class Library>
void finish_plan(const Library& cudnn, ReadyPlan<Library>& ready, std::int64_t num_configs) {
  std::string why = "no engine";
  for (std::int64_t i = 0; i < num_configs; ++i) {
    try {
      auto plan = std::make_unique<Descriptor<Library>>(cudnn, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, cudnn.handle)
          .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, *ready.configs[static_cast<std::size_t>(i)])
          .finish("plan");
      ready.plan = std::move(plan);
      return;
    } catch (const Refused& refused) {
      why = refused.what();
    }
  }
  throw Refused(why);
}

template <class Library>
std::unique_ptr<ReadyPlan<Library>> build_plan(const Library& cudnn, const PrefillShape& shape,
                                               cudnnDataType_t weights_type, Arena& arena) {
  auto ready = std::make_unique<ReadyPlan<Library>>(cudnn, shape, weights_type);
  finish_plan(cudnn, *ready, ask_heuristic(cudnn, *ready));
  std::int64_t bytes = 0;
  std::int64_t given = 0;
  const cudnnStatus_t status = cudnn.get_attribute(
      ready->plan->get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &given, &bytes);
  if (status != CUDNN_STATUS_SUCCESS) throw Refused(std::string("workspace: ") + cudnn.error_string(status));
  if (bytes > 0) ready->workspace = arena.take<unsigned char>(bytes);
  constexpr double kHeadSize = 128;
  ready->scale = static_cast<float>(1 / std::sqrt(kHeadSize));
  ready->offset = static_cast<std::int32_t>(shape.computed);
  return ready;
}

}  // namespace

CudnnAttention::CudnnAttention(std::unique_ptr<Library> library) : library_(std::move(library)) {}
CudnnAttention::~CudnnAttention() = default;

std::unique_ptr<CudnnAttention> CudnnAttention::open() {
  auto library = std::make_unique<Library>();
  library->file = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  if (library->file == nullptr || !library->find_all()) return nullptr;
  if (library->create(&library->handle) != CUDNN_STATUS_SUCCESS) return nullptr;
  return std::unique_ptr<CudnnAttention>(new CudnnAttention(std::move(library)));
}

std::string CudnnAttention::version() const {
  const std::size_t v = library_->get_version();  // 91900
  return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
}

std::unique_ptr<CudnnAttention::Plan> CudnnAttention::plan(const PrefillShape& shape, Arena& arena) {
  // Releases differ in which type the weights may have between softmax and product.
  for (const cudnnDataType_t type : {CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT}) {
    try {
      return build_plan(*library_, shape, type, arena);
    } catch (const Refused& refused) {
      refusal_ = refused.what();
    }
  }
  return nullptr;
}

void CudnnAttention::enqueue(const Plan& plan, const AttentionPointers& p, cudaStream_t on) {
  const auto& ready = static_cast<const ReadyPlan<Library>&>(plan);
  const auto check = [&](cudnnStatus_t status, const char* what) {
    if (status != CUDNN_STATUS_SUCCESS)
      throw DeviceError(std::string(what) + ": " + library_->error_string(status));
  };
  check(library_->set_stream(library_->handle, on), "cudnnSetStream");
  // The interface takes all as void*, and writes to the outputs only.
  std::vector<std::int64_t> ids{kQueries, kKeys, kValues, kOutputs, kScale, kMinusInfinity};
  std::vector<void*> pointers{const_cast<void*>(p.queries),     const_cast<void*>(p.keys),
                              const_cast<void*>(p.values),      p.outputs,
                              const_cast<float*>(&ready.scale), const_cast<float*>(&ready.minus_infinity)};
  if (ready.offset > 0) {  // Else the graph has no such tensor.
    ids.push_back(kOffset);
    pointers.push_back(const_cast<std::int32_t*>(&ready.offset));
  }
  try {
    Descriptor<Library> pack(*library_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set_all(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids)
        .set_all(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers)
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, ready.workspace)
        .finish("variant pack");
    check(library_->execute(library_->handle, ready.plan->get(), pack.get()), "cudnnBackendExecute");
  } catch (const Refused& refused) {
    throw DeviceError(std::string("cuDNN ") + refused.what());
  }
}

}  // namespace kneepoint::microbench

#else  // Built without cudnn.h.

namespace kneepoint::microbench {

struct CudnnAttention::Library {};
CudnnAttention::CudnnAttention(std::unique_ptr<Library> library) : library_(std::move(library)) {}
CudnnAttention::~CudnnAttention() = default;
std::unique_ptr<CudnnAttention> CudnnAttention::open() {
  return nullptr;
}
std::string CudnnAttention::version() const {
  return "";
}
std::unique_ptr<CudnnAttention::Plan> CudnnAttention::plan(const PrefillShape&, Arena&) {
  return nullptr;
}
void CudnnAttention::enqueue(const Plan&, const AttentionPointers&, cudaStream_t) {}

}  // namespace kneepoint::microbench

#endif
