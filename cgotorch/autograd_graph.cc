// autograd_graph.cc: the nodes of the autograd graph.
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "boxing.h"
#include "nodes.h"

namespace cgotorch {
namespace {

namespace ag = torch::autograd;

template <class T>
std::weak_ptr<T> weak_of(const std::shared_ptr<T> &p) {
  return p;
}
template <class T>
c10::weak_intrusive_ptr<T> weak_of(const c10::intrusive_ptr<T> &p) {
  return c10::weak_intrusive_ptr<T>(p);
}
using WeakNode = decltype(weak_of(std::declval<const NodePtr &>()));
using WeakImpl = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;

// What a handle of a node is: the node, or where that of a tensor's gradient is found as long as
// the tensor has one. A hook must not own the node that it is on, for that would own the hook.
struct Held {
  NodePtr node;
  std::optional<WeakNode> weak;  // of a tensor that is computed
  std::optional<WeakImpl> leaf;  // whose node is made when a graph first needs it

  NodePtr now() const {
    if (weak) return weak->lock();
    if (!leaf) return node;
    const at::Tensor t(leaf->lock());
    return t.defined() ? ag::impl::try_get_grad_accumulator(t) : NodePtr();
  }
};

Held *held(Node node) { return reinterpret_cast<Held *>(node); }

const NodePtr &node_of(Node node) { return held(node)->node; }

Node own(Held node) { return reinterpret_cast<Node>(new Held(std::move(node))); }

Node own(NodePtr node) {
  return node ? own(Held{std::move(node), std::nullopt, std::nullopt}) : nullptr;
}

// Released with the last copy of the function that holds it.
struct Kept {
  void *data;
  void (*release)(void *) = nullptr;

  explicit Kept(void *d) : data(d) {}
  Kept(const Kept &) = delete;
  Kept &operator=(const Kept &) = delete;
  ~Kept() {
    if (release != nullptr) release(data);
  }
};

}  // namespace
}  // namespace cgotorch

using namespace cgotorch;

extern "C" {

const char *GradFn(Tensor t, Node *result) {
  return guard([&] { *result = own(in(t, "t").grad_fn()); });
}

const char *GradientEdge(Tensor t, Node *result, int64_t *output) {
  return guard([&] {
    const at::Tensor &self = in(t, "t");
    if (!self.requires_grad())
      throw Failure{"RuntimeError", "a tensor that does not require grad has no gradient edge"};
    if (output == nullptr) {
      const NodePtr &node = self.grad_fn();
      *result = node ? own(Held{{}, weak_of(node), std::nullopt})
                     : own(Held{{}, std::nullopt, WeakImpl(self.getIntrusivePtr())});
      return;
    }
    const ag::Edge edge = ag::impl::gradient_edge(self);
    *output = edge.input_nr;
    *result = own(edge.function);
  });
}

void FreeNode(Node node) { delete held(node); }

uint64_t NodeID(Node node) { return reinterpret_cast<uint64_t>(node_of(node).get()); }

const char *NodeName(Node node, const char **result) {
  return guard([&] { *result = copy_string(node_of(node)->name()); });
}

int64_t NodeNextCount(Node node) { return static_cast<int64_t>(node_of(node)->num_outputs()); }

const char *NodeNext(Node node, Node *results, int64_t *inputs) {
  return guard([&] {
    const auto &edges = node_of(node)->next_edges();
    std::vector<std::unique_ptr<Held>> made;
    for (const ag::Edge &edge : edges)
      made.push_back(edge.is_valid()
                         ? std::make_unique<Held>(Held{edge.function, std::nullopt, std::nullopt})
                         : nullptr);
    for (size_t i = 0; i < made.size(); i++) {
      results[i] = reinterpret_cast<Node>(made[i].release());
      inputs[i] = edges[i].input_nr;
    }
  });
}

const char *NodeVariable(Node node, Tensor *result) {
  return guard([&] {
    *result = nullptr;
    if (const auto *leaf = dynamic_cast<const ag::AccumulateGrad *>(node_of(node).get());
        leaf != nullptr && leaf->variable.defined())
      out(result, at::Tensor(leaf->variable));
  });
}

int64_t BackwardPass(void) { return ag::get_current_graph_task_id(); }

const char *NodeWillRun(Node node, bool *result) {
  return guard([&] {
    const auto *tasks = ag::get_current_graph_task_exec_info();
    if (tasks == nullptr) throw Failure{"RuntimeError", "no backward pass runs on this thread"};
    const NodePtr now = held(node)->now();
    ag::Node *of = now.get();
    const auto *all = ag::get_current_graph_task_nodes_in_graph();
    *result = of != nullptr && all->find(of) != all->end();
    // A pass that accumulates gradients runs all nodes that it comes to; any other has a list, on
    // which also those are that it returns the gradients of and does not come to.
    if (!*result || tasks->empty()) return;
    const auto at = tasks->find(of);
    if (at != tasks->end() && of->topological_nr() == 0 && at->second.captures_)
      throw Failure{"RuntimeError",
                    "a hook of several tensors has a leaf whose gradient the pass returns, as Grad "
                    "does: register it on what is computed from the leaf"};
    *result = at != tasks->end() && at->second.should_execute();
  });
}

const char *KeepForPass(void *data, void (*release)(void *data)) {
  return guard([&] {
    auto kept = std::make_shared<Kept>(data);
    ag::Engine::get_default_engine().queue_callback([kept] {});
    kept->release = release;
  });
}

}  // extern "C"
