/* jit.h: TorchScript, models and other objects that Python wrote with torch.jit.save. Included by
 * cgotorch.h, inside its extern "C".
 *
 * A file is a program. Reading it runs the methods __setstate__ of its classes; calling a method
 * runs what is written there. Python is not needed. */
#ifndef CGOTORCH_JIT_H
#define CGOTORCH_JIT_H

typedef struct {
  const char *path; /* of the file, for messages */
  int64_t fd;       /* a file that is open to be read by place; the caller's, who may close it */
  const void *data; /* or size bytes in memory, which are not kept; NULL: fd counts */
  int64_t size;
  const Device
      *map_location;     /* where tensors are put; NULL: where they were when they were saved */
  bool ignore_checksums; /* of the archive: Python can be told to write it without */
} JITSource;

/* Loads a module. *module is given to FreeObject, and *extra, a dict of the extra files that the
 * file has, by name, to FreeValues.
 *
 * OSError where the file cannot be read; ValueError where it is no TorchScript file, or a damaged
 * one: nothing that it says of lengths, sizes and nesting is believed; NotImplementedError for one
 * that PyTorch wrote before 1.3; RuntimeError for what its code asks for and this process lacks,
 * such as an operator of a library, or a device. */
CGOTORCH_API const char *JITLoad(const JITSource *source, Object *module, Value **extra,
                                 int64_t *n_extra) CGOTORCH_SYMBOL(JITLoad);
/* Writes a module to an open file, as torch.jit.save does. extra is a dict of names and contents.
 */
CGOTORCH_API const char *JITSave(Object module, int64_t fd, const Value *extra, int64_t n_extra)
    CGOTORCH_SYMBOL(JITSave);

/* Whether scripts that run for the first time record which tensors they see, and are compiled
 * again for those. Of the whole process. was may be NULL. */
CGOTORCH_API const char *JITSetProfilingMode(bool on, bool *was)
    CGOTORCH_SYMBOL(JITSetProfilingMode);

/* The functions below take objects of classes that a script has defined, modules among them, and
 * those of C++ that are registered with TorchScript; TypeError for others. Those that only read may
 * be called by any number of threads at once, and so may JITCall, as far as the script allows it.
 * Results are given to FreeValues. */

/* One tuple: the class's name; whether it is a module; a list of its attributes as tuples (name,
 * type, is a parameter, is a buffer); a list of its methods as tuples (name, schema, results' type,
 * list of arguments as tuples (name, type, has a default, default)), without self. */
CGOTORCH_API const char *JITDescribe(Object object, Value **result, int64_t *n_result)
    CGOTORCH_SYMBOL(JITDescribe);
/* The value of an attribute, constant or property. AttributeError where there is none. */
CGOTORCH_API const char *JITGetAttr(Object object, const char *name, Value **result,
                                    int64_t *n_result) CGOTORCH_SYMBOL(JITGetAttr);
/* TypeError for a value of another type; AttributeError where there is no such attribute, or it is
 * a constant. */
CGOTORCH_API const char *JITSetAttr(Object object, const char *name, const Value *value,
                                    int64_t n_value) CGOTORCH_SYMBOL(JITSetAttr);
/* Calls a method; arguments are those of CallOperator. An exception that the script raises has the
 * name of its class; what fails in an op is a RuntimeError, as in Python. */
CGOTORCH_API const char *JITCall(Object object, const char *method, const Value *args,
                                 int64_t n_values, const char *const *names, int64_t n_args,
                                 Value **result, int64_t *n_result) CGOTORCH_SYMBOL(JITCall);

enum { JITParameters = 1, JITBuffers = 2 };

/* A dict of the tensors of a module and the modules in it, in Python's order: parameters, buffers,
 * or both (the sum). With once those under several names have the first alone. */
CGOTORCH_API const char *JITTensors(Object module, int64_t kinds, bool once, Value **result,
                                    int64_t *n_result) CGOTORCH_SYMBOL(JITTensors);
/* A dict of the modules in a module by their names: all, with itself as "", or its own alone. */
CGOTORCH_API const char *JITModules(Object module, bool all, Value **result, int64_t *n_result)
    CGOTORCH_SYMBOL(JITModules);
/* Sets the attribute training of a module and all modules in it. */
CGOTORCH_API const char *JITTrain(Object module, bool on) CGOTORCH_SYMBOL(JITTrain);
/* Frees what an object is, before its handles are freed; it is None from then on. */
CGOTORCH_API void JITClose(Object object) CGOTORCH_SYMBOL(JITClose);

#endif
