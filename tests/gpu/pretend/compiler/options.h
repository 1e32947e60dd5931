// hipRTC's options, as options of g++.
#pragma once
#include <string>
#include <vector>

namespace pretend {

struct Options {
  std::vector<std::string> for_gxx;
  std::string unknown;  // the first one that hipRTC would refuse
};

Options translate(const std::vector<std::string>& options);

// Words of PRETEND_CXXFLAGS, for all kernels: "-O2", "-fsanitize=address".
std::vector<std::string> extra_flags();

}  // namespace pretend
