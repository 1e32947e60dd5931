// libnvrtc.so.13: NVRTC's interface is hipRTC's under other names; the images are the same ones.
#include <cstring>
#include <string>

#include "compiler/program.h"
#include "cuda/forward.h"
#include "cuda_runtime_api.h"

#define API extern "C" __attribute__((visibility("default")))

using pretend::Program;

extern "C" const char* hiprtcGetErrorString(hiprtcResult result);
extern "C" hiprtcResult hiprtcGetCode(Program* program, char* code);

FORWARD(nvrtcCreateProgram, hiprtcCreateProgram)
FORWARD(nvrtcDestroyProgram, hiprtcDestroyProgram)
FORWARD(nvrtcCompileProgram, hiprtcCompileProgram)
FORWARD(nvrtcAddNameExpression, hiprtcAddNameExpression)
FORWARD(nvrtcGetLoweredName, hiprtcGetLoweredName)
FORWARD(nvrtcGetProgramLogSize, hiprtcGetProgramLogSize)
FORWARD(nvrtcGetProgramLog, hiprtcGetProgramLog)

API const char* nvrtcGetErrorString(hiprtcResult result) {
  static thread_local std::string name;
  name = std::string("NV") + (hiprtcGetErrorString(result) + std::strlen("HIP"));
  return name.c_str();
}
API hiprtcResult nvrtcVersion(int* major, int* minor) {
  if (!major || !minor) return HIPRTC_ERROR_INVALID_INPUT;
  *major = CUDART_VERSION / 1000;
  *minor = CUDART_VERSION % 1000 / 10;
  return HIPRTC_SUCCESS;
}

// NVRTC ends PTX by a zero byte, and CuPy takes one off machine code, too.
API hiprtcResult nvrtcGetCUBINSize(Program* program, size_t* bytes) {
  if (!program || !program->compiled) return HIPRTC_ERROR_INVALID_PROGRAM;
  *bytes = program->image.size() + 1;
  return HIPRTC_SUCCESS;
}
API hiprtcResult nvrtcGetCUBIN(Program* program, char* code) {
  const hiprtcResult result = hiprtcGetCode(program, code);
  if (!result) code[program->image.size()] = 0;
  return result;
}
FORWARD(nvrtcGetPTXSize, nvrtcGetCUBINSize)
FORWARD(nvrtcGetPTX, nvrtcGetCUBIN)
