// libhiprtc.so.7: the part of hipRTC's interface that CuPy uses. Behind it is g++.
#include <cstring>

#include "compiler/program.h"

#define API extern "C" __attribute__((visibility("default")))

using pretend::Program;

API const char* hiprtcGetErrorString(hiprtcResult result) {
  switch (result) {
    case HIPRTC_SUCCESS:
      return "HIPRTC_SUCCESS";
    case HIPRTC_ERROR_INVALID_INPUT:
      return "HIPRTC_ERROR_INVALID_INPUT";
    case HIPRTC_ERROR_INVALID_PROGRAM:
      return "HIPRTC_ERROR_INVALID_PROGRAM";
    case HIPRTC_ERROR_INVALID_OPTION:
      return "HIPRTC_ERROR_INVALID_OPTION";
    case HIPRTC_ERROR_COMPILATION:
      return "HIPRTC_ERROR_COMPILATION";
    case HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION:
      return "HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION";
    case HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION:
      return "HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION";
    case HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID:
      return "HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID";
    default:
      return "HIPRTC_ERROR_INTERNAL_ERROR";
  }
}

API hiprtcResult hiprtcVersion(int* major, int* minor) {
  if (!major || !minor) return HIPRTC_ERROR_INVALID_INPUT;
  *major = 7;
  *minor = 0;
  return HIPRTC_SUCCESS;
}

API hiprtcResult hiprtcCreateProgram(Program** program, const char* source, const char* name,
                                     int headers, const char* const* texts,
                                     const char* const* names) {
  if (!program || !source || headers < 0 || (headers && (!texts || !names)))
    return HIPRTC_ERROR_INVALID_INPUT;
  auto* made = new Program;
  made->source = source;
  made->name = name && *name ? name : "kernel.hip";
  for (int i = 0; i < headers; ++i) made->headers[names[i]] = texts[i];
  *program = made;
  return HIPRTC_SUCCESS;
}

API hiprtcResult hiprtcDestroyProgram(Program** program) {
  if (!program || !*program) return HIPRTC_ERROR_INVALID_PROGRAM;
  delete *program;
  *program = nullptr;
  return HIPRTC_SUCCESS;
}

API hiprtcResult hiprtcAddNameExpression(Program* program, const char* expression) {
  if (!program) return HIPRTC_ERROR_INVALID_PROGRAM;
  if (!expression) return HIPRTC_ERROR_INVALID_INPUT;
  if (program->compiled) return HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION;
  program->expressions.emplace_back(expression);
  return HIPRTC_SUCCESS;
}

API hiprtcResult hiprtcGetLoweredName(Program* program, const char* expression, const char** name) {
  if (!program) return HIPRTC_ERROR_INVALID_PROGRAM;
  if (!expression || !name) return HIPRTC_ERROR_INVALID_INPUT;
  if (!program->compiled) return HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION;
  const auto found = program->lowered.find(expression);
  if (found == program->lowered.end()) return HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
  *name = found->second.c_str();
  return HIPRTC_SUCCESS;
}

API hiprtcResult hiprtcCompileProgram(Program* program, int count, const char* const* options) {
  if (!program) return HIPRTC_ERROR_INVALID_PROGRAM;
  if (count < 0 || (count && !options)) return HIPRTC_ERROR_INVALID_INPUT;
  try {
    return pretend::compile(*program, {options, options + count});
  } catch (const std::exception& error) {  // no folder to work in, no g++, ...
    program->log += std::string("pretended hipRTC: ") + error.what() + "\n";
    return HIPRTC_ERROR_INTERNAL_ERROR;
  }
}

API hiprtcResult hiprtcGetCodeSize(Program* program, size_t* bytes) {
  if (!program || !program->compiled) return HIPRTC_ERROR_INVALID_PROGRAM;
  *bytes = program->image.size();
  return HIPRTC_SUCCESS;
}

API hiprtcResult hiprtcGetCode(Program* program, char* code) {
  if (!program || !program->compiled) return HIPRTC_ERROR_INVALID_PROGRAM;
  std::memcpy(code, program->image.data(), program->image.size());
  return HIPRTC_SUCCESS;
}

API hiprtcResult hiprtcGetProgramLogSize(Program* program, size_t* bytes) {
  if (!program) return HIPRTC_ERROR_INVALID_PROGRAM;
  *bytes = program->log.size() + 1;
  return HIPRTC_SUCCESS;
}

API hiprtcResult hiprtcGetProgramLog(Program* program, char* log) {
  if (!program) return HIPRTC_ERROR_INVALID_PROGRAM;
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return HIPRTC_SUCCESS;
}
