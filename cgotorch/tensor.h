/* tensor.h: what a tensor is, and its memory. Included by cgotorch.h, inside its extern "C". */
#ifndef CGOTORCH_TENSOR_H
#define CGOTORCH_TENSOR_H

/* Everything that is known about a tensor without reading its data. sizes, strides and data are
 * borrowed: they are valid while the handle lives and the tensor is not resized. */
typedef struct {
  int64_t ndim;
  int64_t numel;
  const int64_t *sizes;   /* ndim of them; NULL for nested tensors, which have no single shape */
  const int64_t *strides; /* ndim of them; NULL where the layout has none */
  void *data;             /* first element; NULL where the tensor has no plain memory */
  int64_t storage_offset; /* in elements */
  int64_t storage_nbytes; /* of the storage, which views share; 0 where there is none */
  int64_t storage_id;     /* equal for tensors that share a storage; 0 where there is none */
  int64_t storage_uses;   /* references to the storage */
  int64_t uses;           /* references to the tensor: handles, autograd, libtorch's own */
  int64_t version;        /* counts in-place changes; -1 for tensors made in inference mode */
  int64_t itemsize;       /* bytes per element */
  ScalarType dtype;
  Layout layout;
  Device device;
  int32_t flags; /* TensorContiguous | ... */
} TensorInfo;

enum {
  TensorContiguous = 1,
  TensorChannelsLast = 2, /* contiguous in channels_last or channels_last_3d order */
  TensorRequiresGrad = 4,
  TensorIsLeaf = 8,
  TensorConj = 16, /* lazily conjugated */
  TensorNeg = 32,  /* lazily negated */
  TensorInference = 64,
  TensorNested = 128,
  TensorQuantized = 256,
  TensorPinned = 512, /* only looked up for CPU tensors, and only once there is a device */
  TensorHasGradFn = 1024,
  TensorRetainsGrad = 2048,
  TensorWrappedNumber = 4096, /* a Python number in disguise, as in type promotion */
  TensorHasStorage = 8192,
  TensorNonOverlapping = 16384
};

/* Fills *info. Fails for NULL only. */
CGOTORCH_API const char *GetTensorInfo(Tensor t, TensorInfo *info) CGOTORCH_SYMBOL(GetTensorInfo);

/* The same for a tensor in a word (runtime.h), whose sizes and then strides it copies to dims,
 * where ndim of each are no more than n numbers. What info points to may be gone. */
CGOTORCH_API const char *cgotorch_info(int64_t word, TensorInfo *info, int64_t *dims, int64_t n);

/* The address of the first element; NULL for tensors without plain memory (meta, sparse, ...) and
 * for empty ones. Not copied, not owned. */
CGOTORCH_API const char *TensorData(Tensor t, void **data) CGOTORCH_SYMBOL(TensorData);

/* The same and the next two for a tensor in a word. */
CGOTORCH_API const char *cgotorch_data(int64_t word, void **data);
CGOTORCH_API const char *cgotorch_item(int64_t word, Scalar *result);
CGOTORCH_API const char *cgotorch_copy_out(int64_t word, void *dst, int64_t nbytes);

/* The only element of a tensor of one element. RuntimeError for any other number of elements. */
CGOTORCH_API const char *TensorItem(Tensor t, Scalar *result) CGOTORCH_SYMBOL(TensorItem);

/* Copies the elements, row by row, into n bytes at dst, which must be exactly numel * itemsize.
 * Any device, any strides; conjugate and negative bits are resolved. */
CGOTORCH_API const char *TensorCopyOut(Tensor t, void *dst, int64_t nbytes)
    CGOTORCH_SYMBOL(TensorCopyOut);

/* A new contiguous CPU tensor filled from numel * itemsize bytes at src, or uninitialised where src
 * is NULL. ValueError for a negative size or when nbytes does not fit the shape. */
CGOTORCH_API const char *TensorFromData(const void *src, int64_t nbytes, const int64_t *sizes,
                                        int64_t ndim, ScalarType dtype, Tensor *result)
    CGOTORCH_SYMBOL(TensorFromData);

/* A tensor over memory that stays the caller's until deleter(context) runs, which happens once, on
 * any thread, when libtorch drops the storage. deleter may be NULL. strides may be NULL
 * (contiguous). nbytes is the size of the memory at data; a shape that reaches outside is a
 * ValueError. On failure deleter is not called. */
CGOTORCH_API const char *FromBlob(void *data, int64_t nbytes, const int64_t *sizes, int64_t ndim,
                                  const int64_t *strides, ScalarType dtype, Device device,
                                  void (*deleter)(void *context), void *context, Tensor *result)
    CGOTORCH_SYMBOL(FromBlob);

/* How a quantised tensor maps integers to numbers. Per-tensor schemes fill scale and zero_point;
 * per-channel ones fill axis and leave the tables to QPerChannelScales and QPerChannelZeroPoints.
 */
typedef struct {
  int64_t qscheme; /* c10::QScheme's number: 0 per_tensor_affine, 1 per_channel_affine, ... */
  double scale;
  int64_t zero_point;
  int64_t axis;
} QuantizerInfo;
CGOTORCH_API const char *GetQuantizerInfo(Tensor t, QuantizerInfo *info)
    CGOTORCH_SYMBOL(GetQuantizerInfo);

/* The dtype of floating point results where nothing else decides. */
CGOTORCH_API const char *GetDefaultDtype(ScalarType *result) CGOTORCH_SYMBOL(GetDefaultDtype);
/* TypeError unless dtype is a floating point type. */
CGOTORCH_API const char *SetDefaultDtype(ScalarType dtype) CGOTORCH_SYMBOL(SetDefaultDtype);

/* t's storage, a new handle. NotImplementedError where t has none. */
CGOTORCH_API const char *TensorStorage(Tensor t, Storage *result) CGOTORCH_SYMBOL(TensorStorage);
CGOTORCH_API const char *StorageNbytes(Storage s, int64_t *nbytes) CGOTORCH_SYMBOL(StorageNbytes);
CGOTORCH_API const char *StorageData(Storage s, void **data) CGOTORCH_SYMBOL(StorageData);
/* A second handle to the same storage. */
CGOTORCH_API Storage RetainStorage(Storage s) CGOTORCH_SYMBOL(RetainStorage);

#endif
