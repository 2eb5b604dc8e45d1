/* modes.h: the state that ops look up beside their arguments. Included by cgotorch.h, inside its
 * extern "C". */
#ifndef CGOTORCH_MODES_H
#define CGOTORCH_MODES_H

/* Of the calling thread ---------------------------------------------------------------------- */

/* Whether ops record a graph. On in every new thread. */
CGOTORCH_API bool GradModeEnabled(void) CGOTORCH_SYMBOL(GradModeEnabled);
/* Returns the previous value. */
CGOTORCH_API bool SetGradMode(bool enabled) CGOTORCH_SYMBOL(SetGradMode);

/* Whether tensors are made without version counters and can never take part in a graph. */
CGOTORCH_API bool InferenceModeEnabled(void) CGOTORCH_SYMBOL(InferenceModeEnabled);
typedef struct cgotorch_inference_mode *InferenceMode;
/* Changes the mode until LeaveInferenceMode is given *state, on the same thread and in reverse
 * order of entering. */
CGOTORCH_API const char *EnterInferenceMode(bool enabled, InferenceMode *state)
    CGOTORCH_SYMBOL(EnterInferenceMode);
CGOTORCH_API void LeaveInferenceMode(InferenceMode state) CGOTORCH_SYMBOL(LeaveInferenceMode);

/* What autocast does on one type of device. */
typedef struct {
  int32_t device_type;
  ScalarType dtype;
  bool enabled;
  bool cache; /* keep the casts of leaves until the outermost autocast is left; for all devices */
} Autocast;
/* RuntimeError for a device type without autocast. */
CGOTORCH_API const char *GetAutocast(int32_t device_type, Autocast *result)
    CGOTORCH_SYMBOL(GetAutocast);
/* Puts *mode in force on the calling thread and writes what it replaces to *previous. dtype -1
 * keeps the device's own. ValueError where the device cannot compute in that dtype. */
CGOTORCH_API const char *EnterAutocast(const Autocast *mode, Autocast *previous)
    CGOTORCH_SYMBOL(EnterAutocast);
/* Restores *previous; leaving the outermost one clears the cache of casts. */
CGOTORCH_API const char *LeaveAutocast(const Autocast *previous) CGOTORCH_SYMBOL(LeaveAutocast);
CGOTORCH_API void ClearAutocastCache(void) CGOTORCH_SYMBOL(ClearAutocastCache);

/* Whether subnormal numbers are taken for zero. False where the processor cannot. */
CGOTORCH_API bool SetFlushDenormal(bool on) CGOTORCH_SYMBOL(SetFlushDenormal);

/* Of the process ----------------------------------------------------------------------------- */

/* Bools are 0 or 1. */
enum {
  SettingDeterministicAlgorithms = 1, /* 0 off, 1 warn, 2 error where an op has none */
  SettingDeterministicFill,           /* fill what empty() makes, under deterministic algorithms */
  SettingMatmulPrecision,             /* of float32: 0 highest, 1 high, 2 medium */
  SettingCuDNN,                       /* bool */
  SettingCuDNNBenchmark,              /* bool */
  SettingCuDNNBenchmarkLimit,         /* algorithms to try; 0 is all */
  SettingCuDNNDeterministic,          /* bool */
  SettingCuDNNAllowTF32,              /* bool */
  SettingCUDAAllowTF32,               /* bool, for matmul */
  SettingCUDAAllowFP16Reduction,      /* bool, for matmul */
  SettingCUDAAllowBF16Reduction,      /* bool, for matmul */
  SettingMKLDNN,                      /* bool */
  SettingMKLDNNDeterministic,         /* bool */
  SettingNNPACK,                      /* bool */
  SettingFlashSDP,                    /* bool: may scaled_dot_product_attention use it */
  SettingMemEfficientSDP,             /* bool */
  SettingMathSDP,                     /* bool */
  SettingCuDNNSDP,                    /* bool */
  SettingQuantizedEngine,             /* at::QEngine's number */
  SettingSparseInvariants,            /* bool: check what sparse constructors are given */
  SettingWarnAlways,                  /* bool: give warnings again that are given once */
  SettingCount
};
/* ValueError for an unknown setting or a value that it does not take. */
CGOTORCH_API const char *GetSetting(int32_t setting, int64_t *value) CGOTORCH_SYMBOL(GetSetting);
CGOTORCH_API const char *SetSetting(int32_t setting, int64_t value) CGOTORCH_SYMBOL(SetSetting);

#endif
