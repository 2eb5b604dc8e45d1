/* dispatch.h: any operator by its registered name, with boxed arguments: also private ones, and
 * those of libraries loaded at run time. Included by cgotorch.h, inside its extern "C". */
#ifndef CGOTORCH_DISPATCH_H
#define CGOTORCH_DISPATCH_H

enum {
  ValueNone = 0,
  ValueTensor = 1,  /* v.tensor; NULL is an undefined tensor */
  ValueBool = 2,    /* v.i */
  ValueInt = 3,     /* v.i; also for dtypes, layouts, memory formats and other enums */
  ValueFloat = 4,   /* v.f */
  ValueComplex = 5, /* v.c */
  ValueString = 6,  /* v.s, len bytes */
  ValueDevice = 7,  /* v.device */
  ValueGenerator = 8,
  ValueStorage = 9,
  ValueStream = 10, /* v.stream */
  ValueList = 11,   /* len elements, which follow this one; v.i as a result: their kind, 0 if any */
  ValueTuple = 12,  /* the same */
  ValueDict = 13,   /* len pairs: 2 * len elements, which follow this one, key before value */
  /* Anything else that operators pass about: v.object; of a result len is 1 for a module. */
  ValueObject = 14,
  /* A tuple with names: v.s is that of its type, "" if it is not known, and of each field, with
   * line breaks between them. */
  ValueNamedTuple = 15,
  /* v.s is the enum's name, "" if it is not known, a line break, and the member's. A result is
   * followed by the member's value, which is not counted in len. */
  ValueEnum = 16
};

/* An IValue that has no form in C, such as a packed weight. */
typedef struct cgotorch_object *Object;

/* One argument or result. A list is flat: its elements stand behind it in the same array, each with
 * its own elements behind it, so that an array of values holds no pointers to other values. */
typedef struct {
  int64_t kind;
  int64_t len;
  union {
    int64_t i;
    double f;
    double c[2];
    Tensor tensor;
    Generator generator;
    Storage storage;
    Object object;
    const char *s;
    Device device;
    Stream stream;
  } v;
} Value;

/* A registered operator. Handles are cheap, stay valid for the life of the process and are not
 * freed. */
typedef struct cgotorch_operator *Operator;

/* name is "aten::add"; overload is "Tensor", "" for the default one. AttributeError where nothing
 * is registered under it; the message lists the overloads that there are. */
CGOTORCH_API const char *FindOperator(const char *name, const char *overload, Operator *result)
    CGOTORCH_SYMBOL(FindOperator);
/* "aten::mm(Tensor self, Tensor mat2) -> Tensor". Free with FreeString. */
CGOTORCH_API const char *OperatorSchema(Operator op, const char **result)
    CGOTORCH_SYMBOL(OperatorSchema);
/* The number of arguments. */
CGOTORCH_API int64_t OperatorArity(Operator op) CGOTORCH_SYMBOL(OperatorArity);
/* The place of an argument by its name; -1 where there is none. */
CGOTORCH_API int64_t OperatorArgument(Operator op, const char *name)
    CGOTORCH_SYMBOL(OperatorArgument);

/* Calls op. args holds n_values values, which make up n_args arguments (lists count once). names is
 * NULL, or has n_args entries: NULL for an argument by position, else its name; those by name come
 * last. What is not given takes the schema's default. Integers go where floats are expected, a
 * single integer where a list of fixed length is, and any number where a Scalar is.
 * TypeError where an argument is missing, unknown, given twice or of the wrong type.
 * *results is an array of *n_results values in the same flat form, with the results of op in order;
 * the caller gives it to FreeValues. */
CGOTORCH_API const char *CallOperator(Operator op, const Value *args, int64_t n_values,
                                      const char *const *names, int64_t n_args, Value **results,
                                      int64_t *n_results) CGOTORCH_SYMBOL(CallOperator);
/* Frees the array, its strings and its objects, and where handles is true also its tensors,
 * generators and storages. */
CGOTORCH_API void FreeValues(Value *values, int64_t n, bool handles) CGOTORCH_SYMBOL(FreeValues);
/* A second handle to the same object. */
CGOTORCH_API Object RetainObject(Object object) CGOTORCH_SYMBOL(RetainObject);
CGOTORCH_API void FreeObject(Object object) CGOTORCH_SYMBOL(FreeObject);

/* The schemas of all registered operators, sorted, one a line. Free with FreeString. */
CGOTORCH_API const char *ListOperators(const char **result) CGOTORCH_SYMBOL(ListOperators);

/* Loads a shared library that registers operators. OSError where it cannot be loaded. */
CGOTORCH_API const char *LoadOperatorLibrary(const char *path) CGOTORCH_SYMBOL(LoadOperatorLibrary);

#endif
