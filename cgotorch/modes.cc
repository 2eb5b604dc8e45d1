// modes.cc: grad mode, inference mode, autocast, and the settings of at::Context.
#include <ATen/Context.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/QEngine.h>

#include "internal.h"

// ATen/autocast_mode.h includes every operator; these are the functions of it that are used here.
namespace at::autocast {
TORCH_API bool is_autocast_enabled(at::DeviceType device_type);
TORCH_API void set_autocast_enabled(at::DeviceType device_type, bool enabled);
TORCH_API at::ScalarType get_autocast_dtype(at::DeviceType device_type);
TORCH_API void set_autocast_dtype(at::DeviceType device_type, at::ScalarType dtype);
TORCH_API void clear_cache();
TORCH_API int increment_nesting();
TORCH_API int decrement_nesting();
TORCH_API bool is_autocast_cache_enabled();
TORCH_API void set_autocast_cache_enabled(bool enabled);
}  // namespace at::autocast

namespace cgotorch {
namespace {

namespace ac = at::autocast;

at::DeviceType autocast_device(int32_t type) {
  const at::DeviceType t = device(Device{type, -1}).type();
  if (ac::get_autocast_dtype(t) == at::ScalarType::Undefined)
    throw Failure{"RuntimeError", "there is no autocast for device type '" +
                                      c10::DeviceTypeName(t, /*lower_case=*/true) + "'"};
  return t;
}

Autocast autocast_now(at::DeviceType t) {
  return Autocast{static_cast<int32_t>(t), static_cast<ScalarType>(ac::get_autocast_dtype(t)),
                  ac::is_autocast_enabled(t), ac::is_autocast_cache_enabled()};
}

void set_autocast(at::DeviceType t, const Autocast &mode) {
  ac::set_autocast_dtype(t, static_cast<at::ScalarType>(mode.dtype));
  ac::set_autocast_enabled(t, mode.enabled);
  ac::set_autocast_cache_enabled(mode.cache);
}

bool as_bool(int64_t v) {
  if (v != 0 && v != 1)
    throw Failure{"ValueError",
                  "a setting that is on (1) or off (0) was set to " + std::to_string(v)};
  return v == 1;
}

int64_t as_int(int64_t v, int64_t low, int64_t high) {
  if (v < low || v > high)
    throw Failure{"ValueError", "a setting between " + std::to_string(low) + " and " +
                                    std::to_string(high) + " was set to " + std::to_string(v)};
  return v;
}

[[noreturn]] void unknown_setting(int32_t setting) {
  throw Failure{"ValueError", "there is no setting " + std::to_string(setting)};
}

constexpr const char *kMatmulPrecisions[] = {"highest", "high", "medium"};

bool reduces(at::CuBLASReductionOption option) {
  return option == at::CuBLASReductionOption::AllowReducedPrecisionWithSplitK;
}

int64_t get_setting(int32_t setting) {
  at::Context &c = at::globalContext();
  switch (setting) {
    case SettingDeterministicAlgorithms:
      return !c.deterministicAlgorithms() ? 0 : c.deterministicAlgorithmsWarnOnly() ? 1 : 2;
    case SettingDeterministicFill:
      return c.deterministicFillUninitializedMemory();
    case SettingMatmulPrecision:
      return static_cast<int64_t>(c.float32MatmulPrecision());
    case SettingCuDNN:
      return c.userEnabledCuDNN();
    case SettingCuDNNBenchmark:
      return c.benchmarkCuDNN();
    case SettingCuDNNBenchmarkLimit:
      return c.benchmarkLimitCuDNN();
    case SettingCuDNNDeterministic:
      return c.deterministicCuDNN();
    case SettingCuDNNAllowTF32:
      return c.allowTF32CuDNN();
    case SettingCUDAAllowTF32:
      return c.allowTF32CuBLAS();
    case SettingCUDAAllowFP16Reduction:
      return reduces(c.allowFP16ReductionCuBLAS());
    case SettingCUDAAllowBF16Reduction:
      return reduces(c.allowBF16ReductionCuBLAS());
    case SettingMKLDNN:
      return c.userEnabledMkldnn();
    case SettingMKLDNNDeterministic:
      return c.deterministicMkldnn();
    case SettingNNPACK:
      return c.userEnabledNNPACK();
    case SettingFlashSDP:
      return c.userEnabledFlashSDP();
    case SettingMemEfficientSDP:
      return c.userEnabledMemEfficientSDP();
    case SettingMathSDP:
      return c.userEnabledMathSDP();
    case SettingCuDNNSDP:
      return c.userEnabledCuDNNSDP();
    case SettingQuantizedEngine:
      return static_cast<int64_t>(c.qEngine());
    case SettingSparseInvariants:
      return c.checkSparseTensorInvariants().value_or(false);
    case SettingWarnAlways:
      return c10::WarningUtils::get_warnAlways();
    default:
      unknown_setting(setting);
  }
}

void set_setting(int32_t setting, int64_t v) {
  at::Context &c = at::globalContext();
  switch (setting) {
    case SettingDeterministicAlgorithms:
      return c.setDeterministicAlgorithms(as_int(v, 0, 2) != 0, v == 1);
    case SettingDeterministicFill:
      return c.setDeterministicFillUninitializedMemory(as_bool(v));
    case SettingMatmulPrecision:
      return c.setFloat32MatmulPrecision(kMatmulPrecisions[as_int(v, 0, 2)]);
    case SettingCuDNN:
      return c.setUserEnabledCuDNN(as_bool(v));
    case SettingCuDNNBenchmark:
      return c.setBenchmarkCuDNN(as_bool(v));
    case SettingCuDNNBenchmarkLimit:
      return c.setBenchmarkLimitCuDNN(static_cast<int>(as_int(v, 0, INT32_MAX)));
    case SettingCuDNNDeterministic:
      return c.setDeterministicCuDNN(as_bool(v));
    case SettingCuDNNAllowTF32:
      return c.setAllowTF32CuDNN(as_bool(v));
    case SettingCUDAAllowTF32:
      return c.setAllowTF32CuBLAS(as_bool(v));
    case SettingCUDAAllowFP16Reduction:
      return c.setAllowFP16ReductionCuBLAS(as_bool(v));
    case SettingCUDAAllowBF16Reduction:
      return c.setAllowBF16ReductionCuBLAS(as_bool(v));
    case SettingMKLDNN:
      return c.setUserEnabledMkldnn(as_bool(v));
    case SettingMKLDNNDeterministic:
      return c.setDeterministicMkldnn(as_bool(v));
    case SettingNNPACK:
      return c.setUserEnabledNNPACK(as_bool(v));
    case SettingFlashSDP:
      return c.setSDPUseFlash(as_bool(v));
    case SettingMemEfficientSDP:
      return c.setSDPUseMemEfficient(as_bool(v));
    case SettingMathSDP:
      return c.setSDPUseMath(as_bool(v));
    case SettingCuDNNSDP:
      return c.setSDPUseCuDNN(as_bool(v));
    case SettingQuantizedEngine:
      return c.setQEngine(static_cast<at::QEngine>(as_int(v, 0, 255)));
    case SettingSparseInvariants:
      return c.setCheckSparseTensorInvariants(as_bool(v));
    case SettingWarnAlways:
      return c10::WarningUtils::set_warnAlways(as_bool(v));
    default:
      unknown_setting(setting);
  }
}

}  // namespace
}  // namespace cgotorch

using namespace cgotorch;

extern "C" {

bool GradModeEnabled(void) { return c10::GradMode::is_enabled(); }

bool SetGradMode(bool enabled) {
  const bool previous = c10::GradMode::is_enabled();
  c10::GradMode::set_enabled(enabled);
  return previous;
}

bool InferenceModeEnabled(void) { return c10::InferenceMode::is_enabled(); }

const char *EnterInferenceMode(bool enabled, InferenceMode *state) {
  return guard([&] { *state = reinterpret_cast<InferenceMode>(new c10::InferenceMode(enabled)); });
}

void LeaveInferenceMode(InferenceMode state) {
  delete reinterpret_cast<c10::InferenceMode *>(state);
}

const char *GetAutocast(int32_t device_type, Autocast *result) {
  return guard([&] { *result = autocast_now(autocast_device(device_type)); });
}

const char *EnterAutocast(const Autocast *mode, Autocast *previous) {
  return guard([&] {
    const at::DeviceType t = autocast_device(mode->device_type);
    const Autocast before = autocast_now(t);
    Autocast wanted = *mode;
    if (wanted.dtype < 0) wanted.dtype = before.dtype;
    const at::ScalarType type = dtype(wanted.dtype);
    if (wanted.enabled && type != at::kHalf && type != at::kBFloat16)
      throw Failure{"ValueError", std::string("autocast computes in float16 or bfloat16, not in ") +
                                      c10::toString(type)};
    ac::increment_nesting();
    set_autocast(t, wanted);
    *previous = before;
  });
}

const char *LeaveAutocast(const Autocast *previous) {
  return guard([&] {
    if (ac::decrement_nesting() == 0) ac::clear_cache();
    set_autocast(autocast_device(previous->device_type), *previous);
  });
}

void ClearAutocastCache(void) { ac::clear_cache(); }

bool SetFlushDenormal(bool on) { return at::Context::setFlushDenormal(on); }

const char *GetSetting(int32_t setting, int64_t *value) {
  return guard([&] { *value = get_setting(setting); });
}

const char *SetSetting(int32_t setting, int64_t value) {
  return guard([&] { set_setting(setting, value); });
}

}  // extern "C"
