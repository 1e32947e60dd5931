#include "compiler/options.h"

#include <cstdlib>
#include <initializer_list>
#include <sstream>

namespace pretend {
namespace {

bool begins(const std::string& option, std::initializer_list<const char*> prefixes) {
  for (const char* prefix : prefixes)
    if (option.rfind(prefix, 0) == 0) return true;
  return false;
}

// What g++ takes as it is.
bool is_taken(const std::string& option) {
  return begins(option, {"-I", "-D", "-U", "-W", "-w", "-O", "-g", "-ffp-contract="});
}

// CuPy asks for this in all that it compiles itself.
bool flushes_subnormals(const std::string& option) {
#ifdef PRETEND_CUDA
  if (option == "-ftz=true" || option == "--ftz=true") return true;
#endif
  return option == "-fcuda-flush-denormals-to-zero";
}

// What says nothing to a host compiler: the GPU's model, its registers. The standard is always
// C++20, which language/ is written in.
bool is_ignored(const std::string& option) {
#ifdef PRETEND_CUDA  // NVRTC's have one dash or two
  const std::string plain = option.rfind("--", 0) == 0 ? option.substr(1) : option;
  if (begins(plain, {"-fmad=false", "-ftz=", "-prec-div=", "-prec-sqrt=", "-use_fast_math",
                     "-lineinfo", "-pch", "-device-as-default-execution-space"}))
    return true;
#endif
  return begins(option, {"-std=", "--std=", "--offload-arch=", "--gpu-architecture=", "-arch=",
                         "-fgpu-", "-fno-gpu-", "-munsafe-", "-mllvm=", "-ffast-math",
                         "-fno-fast-math", "-default-device", "-fdenormal-fp-math="});
}

// Options whose value may be the next word.
bool has_value(const std::string& option) {
  return option == "-I" || option == "-D" || option == "-U" || option == "-include" ||
         option == "-isystem";
}

}  // namespace

Options translate(const std::vector<std::string>& options) {
  Options result;
  for (size_t i = 0; i < options.size(); ++i) {
    const std::string& option = options[i];
    if (has_value(option) && i + 1 < options.size()) {
      result.for_gxx.push_back(option);
      result.for_gxx.push_back(options[++i]);
    } else if (is_taken(option)) {
      result.for_gxx.push_back(option);
    } else if (flushes_subnormals(option)) {
      result.for_gxx.push_back("-DPRETEND_FLUSHES_SUBNORMALS");
    } else if (!is_ignored(option) && result.unknown.empty()) {
      result.unknown = option;
    }
  }
  return result;
}

std::vector<std::string> extra_flags() {
  const char* text = std::getenv("PRETEND_CXXFLAGS");
  std::istringstream words(text ? text : "");
  std::vector<std::string> result;
  for (std::string word; words >> word;) result.push_back(word);
  return result;
}

}  // namespace pretend
