/* core.h: what cgotorch offers beyond PyTorch's native functions. Included by cgotorch.h, inside
 * its extern "C". One header per subject. */
#include "tensor.h"
#include "runtime.h"
#include "autograd.h"
#include "modes.h"
#include "generator.h"
#include "io.h"
#include "dispatch.h"
#include "index.h"
#include "warnings.h"
#include "graph.h"
#include "loops.h"
#include "aoti.h"
