// distributed.cc: c10d for C. Its objects are reference-counted and are handles as they are;
// nothing is computed here.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/item.h>
#include <c10/util/intrusive_ptr.h>

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/debug.h>

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <cstring>
#include <mutex>
#include <typeinfo>

#include "internal.h"
#include "nccl.h"

namespace cgotorch {
namespace {

using std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;

// Handles --------------------------------------------------------------------------------------

c10d::Store &of(DistStore s) { return *reinterpret_cast<c10d::Store *>(s); }
c10d::ProcessGroup &of(DistGroup g) { return *reinterpret_cast<c10d::ProcessGroup *>(g); }
c10d::Work &of(DistWork w) { return *reinterpret_cast<c10d::Work *>(w); }

template <class Handle, class T>
void give(Handle *result, c10::intrusive_ptr<T> object) {
  *result = reinterpret_cast<Handle>(object.release());
}

template <class Handle, class Base, class T>
void give_as(Handle *result, c10::intrusive_ptr<T> object) {
  give(result, c10::intrusive_ptr<Base>(std::move(object)));
}

// Another owner of what a handle is of.
template <class T, class Handle>
c10::intrusive_ptr<T> shared(Handle h) {
  return c10::intrusive_ptr<T>::unsafe_reclaim_from_nonowning(reinterpret_cast<T *>(h));
}

template <class T, class Handle>
void drop(Handle h) {
  if (h != nullptr) c10::intrusive_ptr<T>::reclaim(reinterpret_cast<T *>(h));
}

// guard for stores. Some say RuntimeError where others say DistStoreError.
template <class F>
const char *guard_store(F &&f) noexcept {
  return guard([&] {
    try {
      f();
    } catch (const c10::Error &e) {
      if (typeid(e) != typeid(c10::Error)) throw;
      throw Failure{"DistStoreError", python_message(e.what_without_backtrace())};
    }
  });
}

// Stores -----------------------------------------------------------------------------------------

std::vector<uint8_t> bytes(const void *value, int64_t n) {
  const auto *p = static_cast<const uint8_t *>(value);
  return {p, p + n};
}

void give_bytes(const std::vector<uint8_t> &value, void **result, int64_t *n) {
  void *copy = std::malloc(value.empty() ? 1 : value.size());
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, value.data(), value.size());
  *result = copy;
  *n = static_cast<int64_t>(value.size());
}

std::vector<std::string> strings(const char *const *keys, int64_t n) { return {keys, keys + n}; }

// Threads --------------------------------------------------------------------------------------

// While it lives SIGPIPE is blocked, and for ever in the threads that begin meanwhile: those of
// Gloo and of a store's server, which write to sockets of peers that may have died. They expect an
// error, and would get the signal, of which the process dies: Python ignores it, and Go only on
// threads of its own.
class WithoutBrokenPipes {
 public:
  WithoutBrokenPipes() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutBrokenPipes() {
    const timespec now = {};
    while (!was_pending_ && sigtimedwait(&pipe_, nullptr, &now) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutBrokenPipes(const WithoutBrokenPipes &) = delete;
  WithoutBrokenPipes &operator=(const WithoutBrokenPipes &) = delete;

 private:
  sigset_t pipe_, before_;
  bool was_pending_;
};

// Groups -----------------------------------------------------------------------------------------

// The same prefixes as in torch.distributed's _new_process_group_helper, for ranks of Python.
class NewGroup {
 public:
  using Group = c10d::ProcessGroup;

  NewGroup(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
           const DistGroupOptions &options)
      : rank_(rank), size_(size), name_(text(options.name)), timeout_(options.timeout_ms) {
    const std::string backend = options.backend != nullptr ? options.backend : "gloo";
    const bool with_nccl = backend == "cpu:gloo,cuda:nccl";
    if (backend != "gloo" && !with_nccl)
      throw Failure{"NotImplementedError", "there is no backend '" + backend +
                                               "' in this libcgotorch, but 'gloo' and "
                                               "'cpu:gloo,cuda:nccl'"};
    if (with_nccl) need_cuda();
    const WithoutBrokenPipes blocked;
    store_ = c10::make_intrusive<c10d::PrefixStore>(name_ + "/", store);
    group = c10::make_intrusive<Group>(store_, rank, size);
    const auto of_gloo = c10d::ProcessGroupGloo::Options::create_default(timeout_);
    describe(*of_gloo, options);
    const auto gloo_store = prefix("cpu/");
    const auto gloo = checked(
        gloo_store, c10::make_intrusive<c10d::ProcessGroupGloo>(gloo_store, rank, size, of_gloo));
    group->setBackend(c10::DeviceType::CPU, Group::BackendType::GLOO, gloo);
    if (with_nccl) {
      c10d::Backend::Options of_nccl("nccl", timeout_);
      describe(of_nccl, options);
      const auto nccl_store = prefix("cuda/");
      const auto nccl = checked(nccl_store, new_nccl(nccl_store, rank, size, of_nccl));
      group->setBackend(c10::DeviceType::CUDA, Group::BackendType::NCCL, nccl);
    } else {
      group->setBackend(c10::DeviceType::CUDA, Group::BackendType::GLOO, gloo);
    }
    // Barriers are its.
    group->setDefaultBackend(with_nccl ? Group::BackendType::NCCL : Group::BackendType::GLOO);
    group->setGroupName(name_);
    group->setGroupDesc(text(options.description));
  }

  c10::intrusive_ptr<Group> group;

 private:
  static std::string text(const char *s) { return s != nullptr ? s : ""; }

  void describe(c10d::Backend::Options &of, const DistGroupOptions &options) const {
    of.group_name = name_;
    of.group_desc = text(options.description);
    of.global_ranks_in_group.assign(options.ranks, options.ranks + options.n_ranks);
  }

  c10::intrusive_ptr<c10d::Store> prefix(const std::string &with) const {
    return c10::make_intrusive<c10d::PrefixStore>(with, store_);
  }

  // The backend that compares what ranks do before they do it, where that was asked for.
  c10::intrusive_ptr<c10d::Backend> checked(const c10::intrusive_ptr<c10d::Store> &store,
                                            c10::intrusive_ptr<c10d::Backend> backend) const {
    if (c10d::debug_level() != c10d::DebugLevel::Detail) return backend;
    const auto of_checks = c10::make_intrusive<c10d::PrefixStore>("pg_wrapper:" + name_, store);
    return c10::make_intrusive<c10d::ProcessGroupWrapper>(
        backend,
        c10::make_intrusive<c10d::ProcessGroupGloo>(
            of_checks, rank_, size_, c10d::ProcessGroupGloo::Options::create_default(timeout_)));
  }

  int rank_, size_;
  std::string name_;
  milliseconds timeout_;
  c10::intrusive_ptr<c10d::Store> store_;
};

// Collectives ------------------------------------------------------------------------------------

const DistOptions &given(const DistOptions *options) {
  static const DistOptions none = {};
  return options != nullptr ? *options : none;
}

// What all options structs of c10d have.
template <class Options>
Options common(const DistOptions &from) {
  Options options;
  if (from.timeout_ms > 0) options.timeout = milliseconds(from.timeout_ms);
  options.asyncOp = true;  // else NCCL gives out nothing to wait for
  return options;
}

template <class Options>
Options reducing(const DistOptions &from) {
  if (from.op < 0 || from.op >= c10d::ReduceOp::PREMUL_SUM)
    throw Failure{"ValueError", "there is no reduction " + std::to_string(from.op)};
  Options options = common<Options>(from);
  options.reduceOp = static_cast<c10d::ReduceOp::RedOpType>(from.op);
  return options;
}

Tensors list(const Tensor *t, int64_t n, const char *name) { return in_list(t, n, name).vec(); }
Tensors one(const Tensor &t, const char *name) { return {in(t, name)}; }

// torch 2.15 renamed some collectives.
#define CGOTORCH_RENAMED(now, before)               \
  template <class Group, class... Args>             \
  auto now(Group &group, Args &...args) {           \
    if constexpr (requires { group.now(args...); }) \
      return group.now(args...);                    \
    else                                            \
      return group.before(args...);                 \
  }
CGOTORCH_RENAMED(all_gather_single, _allgather_base)
CGOTORCH_RENAMED(reduce_scatter_single, _reduce_scatter_base)
CGOTORCH_RENAMED(reduce_scatter_single_coalesced, reduce_scatter_tensor_coalesced)
CGOTORCH_RENAMED(all_to_all_single, alltoall_base)
#undef CGOTORCH_RENAMED

// Runs f, which begins a collective, and gives out its work.
template <class F>
const char *begin(DistWork *result, F &&f) noexcept {
  return guard([&] {
    c10::intrusive_ptr<c10d::Work> work = f();
    if (work == nullptr) throw Failure{"RuntimeError", "the backend has begun nothing"};
    give(result, std::move(work));
  });
}

// That a group can be made and reduces: nothing else would notice declarations of gloo that are not
// what libtorch was compiled with.
void self_test() {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(milliseconds(10000));
  DistGroupOptions options = {};
  options.name = "self test";
  options.timeout_ms = 10000;
  const auto group = NewGroup(store, 0, 1, options).group;
  const at::NoGradGuard no_grad;
  Tensors tensors = {at::full({3}, 7, at::kFloat)};
  group->allreduce(tensors)->wait();
  if (group->getRank() != 0 || group->getSize() != 1 || tensors[0][2].item<float>() != 7)
    throw Failure{"RuntimeError", "a group of one rank reduces wrongly"};
}

}  // namespace
}  // namespace cgotorch

using namespace cgotorch;

const char *DistSelfTest(void) {
  static std::once_flag once;
  static std::string failed;
  return guard([&] {
    std::call_once(once, [] {
      const char *error = guard(self_test);
      if (error == nullptr) return;
      failed = error;
      FreeString(error);
    });
    if (!failed.empty())
      throw Failure{"RuntimeError", "c10d of torch " + std::string(cgotorch_torch_loaded()) +
                                        " is not as libcgotorch expects it: " + failed};
  });
}

const char *DistSetDebugLevel(int64_t level) {
  return guard([&] {
    if (level < -1 || level > 2)
      throw Failure{"ValueError", "there is no debug level " + std::to_string(level)};
    if (level < 0) {
      c10d::setDebugLevelFromEnvironment();
    } else {
      c10d::setDebugLevel(static_cast<c10d::DebugLevel>(level));
    }
  });
}

int64_t DistDebugLevel(void) { return static_cast<int64_t>(c10d::debug_level()); }

// Stores -----------------------------------------------------------------------------------------

const char *DistTCPStore(const DistTCPOptions *o, DistStore *result) {
  return guard([&] {
    if (o->port < 0 || o->port > 65535)
      throw Failure{"ValueError",
                    "the port is " + std::to_string(o->port) + ", and must be from 0 to 65535"};
    const WithoutBrokenPipes blocked;
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(o->port);
    options.isServer = o->server;
    if (o->world_size >= 0) options.numWorkers = static_cast<size_t>(o->world_size);
    options.waitWorkers = o->wait_for_workers;
    options.timeout = milliseconds(o->timeout_ms);
    options.multiTenant = o->multi_tenant;
    options.useLibUV = !o->no_libuv;
    give_as<DistStore, c10d::Store>(result, c10::make_intrusive<c10d::TCPStore>(o->host, options));
  });
}

const char *DistFileStore(const char *path, int64_t world_size, DistStore *result) {
  return guard([&] {
    give_as<DistStore, c10d::Store>(
        result, c10::make_intrusive<c10d::FileStore>(path, static_cast<int>(world_size)));
  });
}

const char *DistHashStore(DistStore *result) {
  return guard(
      [&] { give_as<DistStore, c10d::Store>(result, c10::make_intrusive<c10d::HashStore>()); });
}

const char *DistPrefixStore(const char *prefix, DistStore store, DistStore *result) {
  return guard([&] {
    give_as<DistStore, c10d::Store>(
        result, c10::make_intrusive<c10d::PrefixStore>(prefix, shared<c10d::Store>(store)));
  });
}

const char *DistStoreClone(DistStore store, DistStore *result) {
  return guard([&] { give(result, of(store).clone()); });
}

void DistStoreFree(DistStore store) { drop<c10d::Store>(store); }

const char *DistStorePort(DistStore store, int64_t *result) {
  return guard([&] {
    const auto *tcp = dynamic_cast<c10d::TCPStore *>(&of(store));
    if (tcp == nullptr) throw_value("only a TCP store has a port");
    *result = tcp->getPort();
  });
}

const char *DistStoreSetTimeout(DistStore store, int64_t timeout_ms) {
  return guard([&] { of(store).setTimeout(milliseconds(timeout_ms)); });
}

const char *DistStoreGetTimeout(DistStore store, int64_t *result) {
  return guard([&] { *result = of(store).getTimeout().count(); });
}

const char *DistStoreSet(DistStore store, const char *key, const void *value, int64_t n) {
  return guard_store([&] { of(store).set(key, bytes(value, n)); });
}

const char *DistStoreGet(DistStore store, const char *key, void **value, int64_t *n) {
  return guard_store([&] { give_bytes(of(store).get(key), value, n); });
}

const char *DistStoreAdd(DistStore store, const char *key, int64_t add, int64_t *result) {
  return guard_store([&] { *result = of(store).add(key, add); });
}

const char *DistStoreAppend(DistStore store, const char *key, const void *value, int64_t n) {
  return guard_store([&] { of(store).append(key, bytes(value, n)); });
}

const char *DistStoreCompareSet(DistStore store, const char *key, const void *expected,
                                int64_t n_expected, const void *desired, int64_t n_desired,
                                void **value, int64_t *n) {
  return guard_store([&] {
    give_bytes(of(store).compareSet(key, bytes(expected, n_expected), bytes(desired, n_desired)),
               value, n);
  });
}

const char *DistStoreDelete(DistStore store, const char *key, bool *was_there) {
  return guard_store([&] { *was_there = of(store).deleteKey(key); });
}

const char *DistStoreCheck(DistStore store, const char *const *keys, int64_t n, bool *all_there) {
  return guard_store([&] { *all_there = of(store).check(strings(keys, n)); });
}

const char *DistStoreWait(DistStore store, const char *const *keys, int64_t n, int64_t timeout_ms) {
  return guard_store([&] {
    if (timeout_ms < 0) {
      of(store).wait(strings(keys, n));
    } else {
      of(store).wait(strings(keys, n), milliseconds(timeout_ms));
    }
  });
}

const char *DistStoreNumKeys(DistStore store, int64_t *result) {
  return guard_store([&] { *result = of(store).getNumKeys(); });
}

// Groups -----------------------------------------------------------------------------------------

const char *DistNewGroup(DistStore store, int64_t rank, int64_t size,
                         const DistGroupOptions *options, DistGroup *result) {
  return guard([&] {
    if (size < 1 || rank < 0 || rank >= size || size > INT32_MAX)
      throw Failure{"ValueError",
                    "there is no rank " + std::to_string(rank) + " of " + std::to_string(size)};
    give(result, NewGroup(shared<c10d::Store>(store), static_cast<int>(rank),
                          static_cast<int>(size), *options)
                     .group);
  });
}

void DistGroupFree(DistGroup group) {
  if (group == nullptr) return;
  if (of(group).getBackendType() == c10d::ProcessGroup::BackendType::NCCL) {
    // Else it warns that nobody has said goodbye.
    FreeString(guard([&] { of(group).getBackend(c10::DeviceType::CUDA)->shutdown(); }));
  }
  drop<c10d::ProcessGroup>(group);
}

const char *DistGroupSetTimeout(DistGroup group, int64_t timeout_ms) {
  return guard([&] { of(group).setTimeout(milliseconds(timeout_ms)); });
}

// Collectives ------------------------------------------------------------------------------------

const char *DistBroadcast(DistGroup group, Tensor tensor, const DistOptions *options,
                          DistWork *result) {
  return begin(result, [&] {
    auto o = common<c10d::BroadcastOptions>(given(options));
    o.rootRank = given(options).root;
    Tensors tensors = one(tensor, "tensor");
    return of(group).broadcast(tensors, o);
  });
}

const char *DistAllReduce(DistGroup group, Tensor tensor, const DistOptions *options,
                          DistWork *result) {
  return begin(result, [&] {
    const auto o = reducing<c10d::AllreduceOptions>(given(options));
    Tensors tensors = one(tensor, "tensor");
    return of(group).allreduce(tensors, o);
  });
}

const char *DistAllReduceCoalesced(DistGroup group, const Tensor *tensors, int64_t n,
                                   const DistOptions *options, DistWork *result) {
  return begin(result, [&] {
    const auto o = reducing<c10d::AllreduceCoalescedOptions>(given(options));
    Tensors ts = list(tensors, n, "tensors");
    return of(group).allreduce_coalesced(ts, o);
  });
}

const char *DistReduce(DistGroup group, Tensor tensor, const DistOptions *options,
                       DistWork *result) {
  return begin(result, [&] {
    auto o = reducing<c10d::ReduceOptions>(given(options));
    o.rootRank = given(options).root;
    Tensors tensors = one(tensor, "tensor");
    return of(group).reduce(tensors, o);
  });
}

const char *DistAllGather(DistGroup group, const Tensor *outputs, int64_t n, Tensor input,
                          const DistOptions *options, DistWork *result) {
  return begin(result, [&] {
    const auto o = common<c10d::AllgatherOptions>(given(options));
    std::vector<Tensors> out = {list(outputs, n, "outputs")};
    Tensors tensors = one(input, "input");
    return of(group).allgather(out, tensors, o);
  });
}

const char *DistAllGatherSingle(DistGroup group, Tensor output, Tensor input,
                                const DistOptions *options, DistWork *result) {
  return begin(result, [&] {
    auto o = common<c10d::AllgatherOptions>(given(options));
    at::Tensor out = in(output, "output"), from = in(input, "input");
    return all_gather_single(of(group), out, from, o);
  });
}

const char *DistAllGatherSingleCoalesced(DistGroup group, const Tensor *outputs,
                                         const Tensor *inputs, int64_t n,
                                         const DistOptions *options, DistWork *result) {
  return begin(result, [&] {
    const auto o = common<c10d::AllgatherOptions>(given(options));
    Tensors from = list(inputs, n, "inputs"), to = list(outputs, n, "outputs");
    for (const Tensors *ts : {&from, &to})
      for (const at::Tensor &t : *ts)
        if (!t.device().is_cpu())
          throw Failure{"NotImplementedError", "it is of tensors in the computer's memory"};
    // Of all_gather_single_coalesced Gloo makes this, and ranks that compare before each collective
    // know only this in torch 2.11.
    std::vector<Tensors> of_ranks(static_cast<size_t>(of(group).getSize()));
    for (const at::Tensor &output : to) {
      Tensors parts = output.chunk(of(group).getSize());
      if (parts.size() != of_ranks.size())
        throw_value("an output must have rows for each rank, as many for all");
      for (size_t rank = 0; rank < parts.size(); rank++)
        of_ranks[rank].push_back(std::move(parts[rank]));
    }
    return of(group).allgather_coalesced(of_ranks, from, o);
  });
}

const char *DistGather(DistGroup group, const Tensor *outputs, int64_t n, Tensor input,
                       const DistOptions *options, DistWork *result) {
  return begin(result, [&] {
    auto o = common<c10d::GatherOptions>(given(options));
    o.rootRank = given(options).root;
    std::vector<Tensors> out;
    if (of(group).getRank() == o.rootRank) out.push_back(list(outputs, n, "outputs"));
    Tensors tensors = one(input, "input");
    return of(group).gather(out, tensors, o);
  });
}

const char *DistScatter(DistGroup group, Tensor output, const Tensor *inputs, int64_t n,
                        const DistOptions *options, DistWork *result) {
  return begin(result, [&] {
    auto o = common<c10d::ScatterOptions>(given(options));
    o.rootRank = given(options).root;
    std::vector<Tensors> from;
    if (of(group).getRank() == o.rootRank) from.push_back(list(inputs, n, "inputs"));
    Tensors tensors = one(output, "output");
    return of(group).scatter(tensors, from, o);
  });
}

const char *DistReduceScatter(DistGroup group, Tensor output, const Tensor *inputs, int64_t n,
                              const DistOptions *options, DistWork *result) {
  return begin(result, [&] {
    const auto o = reducing<c10d::ReduceScatterOptions>(given(options));
    std::vector<Tensors> from = {list(inputs, n, "inputs")};
    Tensors tensors = one(output, "output");
    return of(group).reduce_scatter(tensors, from, o);
  });
}

const char *DistReduceScatterSingle(DistGroup group, Tensor output, Tensor input,
                                    const DistOptions *options, DistWork *result) {
  return begin(result, [&] {
    auto o = reducing<c10d::ReduceScatterOptions>(given(options));
    at::Tensor out = in(output, "output"), from = in(input, "input");
    return reduce_scatter_single(of(group), out, from, o);
  });
}

const char *DistReduceScatterSingleCoalesced(DistGroup group, const Tensor *outputs,
                                             const Tensor *inputs, int64_t n,
                                             const DistOptions *options, DistWork *result) {
  return begin(result, [&] {
    auto o = reducing<c10d::ReduceScatterOptions>(given(options));
    Tensors out = list(outputs, n, "outputs"), from = list(inputs, n, "inputs");
    return reduce_scatter_single_coalesced(of(group), out, from, o);
  });
}

const char *DistAllToAll(DistGroup group, const Tensor *outputs, int64_t n_outputs,
                         const Tensor *inputs, int64_t n_inputs, const DistOptions *options,
                         DistWork *result) {
  return begin(result, [&] {
    const auto o = common<c10d::AllToAllOptions>(given(options));
    Tensors out = list(outputs, n_outputs, "outputs"), from = list(inputs, n_inputs, "inputs");
    return of(group).alltoall(out, from, o);
  });
}

const char *DistAllToAllSingle(DistGroup group, Tensor output, Tensor input,
                               const int64_t *output_counts, int64_t n_output_counts,
                               const int64_t *input_counts, int64_t n_input_counts,
                               const DistOptions *options, DistWork *result) {
  return begin(result, [&] {
    auto o = common<c10d::AllToAllOptions>(given(options));
    at::Tensor out = in(output, "output"), from = in(input, "input");
    std::vector<int64_t> out_counts = ints(output_counts, n_output_counts).vec();
    std::vector<int64_t> in_counts = ints(input_counts, n_input_counts).vec();
    return all_to_all_single(of(group), out, from, out_counts, in_counts, o);
  });
}

const char *DistSend(DistGroup group, Tensor tensor, int64_t tag, const DistOptions *options,
                     DistWork *result) {
  return begin(result, [&] {
    Tensors tensors = one(tensor, "tensor");
    return of(group).send(tensors, static_cast<int>(given(options).root), static_cast<int>(tag));
  });
}

const char *DistRecv(DistGroup group, Tensor tensor, int64_t tag, const DistOptions *options,
                     DistWork *result) {
  return begin(result, [&] {
    Tensors tensors = one(tensor, "tensor");
    const int from = static_cast<int>(given(options).root);
    if (from < 0) return of(group).recvAnysource(tensors, static_cast<int>(tag));
    return of(group).recv(tensors, from, static_cast<int>(tag));
  });
}

const char *DistBarrier(DistGroup group, const DistOptions *options, DistWork *result) {
  return begin(result, [&] {
    const auto o = common<c10d::BarrierOptions>(given(options));
    return of(group).barrier(o);
  });
}

const char *DistMonitoredBarrier(DistGroup group, const DistOptions *options, bool all) {
  return guard(
      [&] { of(group).monitoredBarrier(common<c10d::BarrierOptions>(given(options)), all); });
}

const char *DistWorkWait(DistWork work, int64_t timeout_ms) {
  return guard([&] {
    if (!of(work).wait(timeout_ms > 0 ? milliseconds(timeout_ms) : kNoTimeout))
      throw Failure{"RuntimeError", "it was aborted"};
  });
}

const char *DistWorkDone(DistWork work, bool *result) {
  return guard([&] { *result = of(work).isCompleted(); });
}

const char *DistWorkSource(DistWork work, int64_t *result) {
  return guard([&] { *result = of(work).sourceRank(); });
}

const char *DistWorkAbort(DistWork work) {
  return guard([&] { of(work).abort(); });
}

void DistWorkFree(DistWork work) { drop<c10d::Work>(work); }
