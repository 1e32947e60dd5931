// What hipRTC's interface hands out: a source on its way to an image.
#pragma once
#include <map>
#include <string>
#include <vector>

// As AMD's hiprtc.h numbers them.
enum hiprtcResult {
  HIPRTC_SUCCESS = 0,
  HIPRTC_ERROR_INVALID_INPUT = 3,
  HIPRTC_ERROR_INVALID_PROGRAM = 4,
  HIPRTC_ERROR_INVALID_OPTION = 5,
  HIPRTC_ERROR_COMPILATION = 6,
  HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION = 8,
  HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION = 9,
  HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID = 10,
  HIPRTC_ERROR_INTERNAL_ERROR = 11,
};

namespace pretend {

struct Program {
  std::string source, name;
  std::map<std::string, std::string> headers;  // name in #include -> text
  std::vector<std::string> expressions;        // whose kernels get a name in the image
  std::map<std::string, std::string> lowered;  // expression -> that name
  bool compiled = false;
  std::string log, image;
};

// Compile with g++: fills log, image and lowered.
hiprtcResult compile(Program& program, const std::vector<std::string>& options);

}  // namespace pretend
