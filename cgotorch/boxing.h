// boxing.h: values of C as IValues and back, for operators (dispatch.cc) and for scripts (jit.cc).
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "internal.h"

namespace cgotorch {

// What arguments are for. The first few of the schema's are not the caller's: self, of a method.
struct Callee {
  const c10::FunctionSchema &schema;
  std::string name;
  size_t first = 0;
};

// Arguments as the schema wants them, from the callee's first on, with defaults; see CallOperator.
std::vector<c10::IValue> box_arguments(const Callee &callee, const Value *args, int64_t n_values,
                                       const char *const *names, int64_t n_args);

// All values, which make up one, as a type wants it; name is what errors call it.
c10::IValue box_value(const std::string &name, const c10::TypePtr &type, const Value *values,
                      int64_t n);

// IValues as an array for FreeValues. What has no form in C is an object, and where only objects of
// classes may be that a NotImplementedError that names it.
void unbox(const std::vector<c10::IValue> &from, bool classes_only, Value **values, int64_t *n);

// A malloc'ed copy for FreeString.
const char *copy_string(const std::string &s);

}  // namespace cgotorch
