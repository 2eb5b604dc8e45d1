/* autograd_graph.h: the nodes of the autograd graph, and hooks for the tensors that ops save in it.
 * Included by cgotorch.h, inside its extern "C". Callbacks, data and release are as in autograd.h.
 */
#ifndef CGOTORCH_AUTOGRAD_GRAPH_H
#define CGOTORCH_AUTOGRAD_GRAPH_H

/* A node of the graph, owned: FreeNode. Two handles of one node have the same NodeID. */
typedef struct cgotorch_node *Node;

/* The node that made t; NULL for a leaf. */
CGOTORCH_API const char *GradFn(Tensor t, Node *result) CGOTORCH_SYMBOL(GradFn);
/* The node that t's gradient goes to, of a leaf the one that accumulates it, and which of the
 * node's results t is. With output NULL the handle does not keep the node: it is for NodeWillRun
 * alone, which says false once the graph is gone. RuntimeError unless t requires grad. */
CGOTORCH_API const char *GradientEdge(Tensor t, Node *result, int64_t *output)
    CGOTORCH_SYMBOL(GradientEdge);
CGOTORCH_API void FreeNode(Node node) CGOTORCH_SYMBOL(FreeNode);
CGOTORCH_API uint64_t NodeID(Node node) CGOTORCH_SYMBOL(NodeID);
/* "AddBackward0". Free with FreeString. */
CGOTORCH_API const char *NodeName(Node node, const char **result) CGOTORCH_SYMBOL(NodeName);
/* How many nodes a node's gradients go to, and these: NULL where an input has no gradient.
 * inputs[i] is which result of the node the input was. */
CGOTORCH_API int64_t NodeNextCount(Node node) CGOTORCH_SYMBOL(NodeNextCount);
CGOTORCH_API const char *NodeNext(Node node, Node *results, int64_t *inputs)
    CGOTORCH_SYMBOL(NodeNext);
/* The leaf whose gradient the node accumulates; NULL for other nodes. */
CGOTORCH_API const char *NodeVariable(Node node, Tensor *result) CGOTORCH_SYMBOL(NodeVariable);

/* The number of the backward pass that runs on this thread; -1 where none does. */
CGOTORCH_API int64_t BackwardPass(void) CGOTORCH_SYMBOL(BackwardPass);
/* Whether the pass that runs on this thread runs the node. RuntimeError outside of a pass, and for
 * the node of a leaf whose gradient the pass returns. */
CGOTORCH_API const char *NodeWillRun(Node node, bool *result) CGOTORCH_SYMBOL(NodeWillRun);
/* Has data released when the pass that runs on this thread is over, however it ends. */
CGOTORCH_API const char *KeepForPass(void *data, void (*release)(void *data))
    CGOTORCH_SYMBOL(KeepForPass);

/* Between EnterSavedHooks and LeaveSavedHooks, what ops of this thread save is given to NextSaved,
 * once for each tensor, when the op has returned: the tensor, owned by the caller, a handle for
 * SetSaved and the data of the hooks. NULL says that there is nothing more. SetSaved has the graph
 * keep packed and not the tensor; unpack gives the tensor back when the backward pass asks for it,
 * with the same shape, dtype and device, else RuntimeError. release is called for packed, too. What
 * is not set is kept as it is. */
typedef const char *(*UnpackFunction)(void *data, void *packed, Tensor *result);
CGOTORCH_API const char *EnterSavedHooks(UnpackFunction unpack, void *data,
                                         void (*release)(void *data))
    CGOTORCH_SYMBOL(EnterSavedHooks);
CGOTORCH_API void LeaveSavedHooks(void) CGOTORCH_SYMBOL(LeaveSavedHooks);

typedef struct cgotorch_saved *SavedTensor;
CGOTORCH_API SavedTensor NextSaved(Tensor *result, void **data) CGOTORCH_SYMBOL(NextSaved);
/* Takes saved over. packed NULL: the tensor is kept. */
CGOTORCH_API void SetSaved(SavedTensor saved, void *packed) CGOTORCH_SYMBOL(SetSaved);

#endif
