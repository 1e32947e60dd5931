// From stdin to stdout: a preprocessed source with words of C++ in place of marks, and an entry for
// each kernel with C linkage. See kernels_on_host.py.
#include <iostream>
#include <iterator>
#include <string>

#include "compiler/kernels_in_text.h"

int main() {
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  const pretend::Kernels kernels = pretend::find_kernels(text);
  std::cout << kernels.text << "\n# 1 \"entries of kernels\"";
  for (const std::string& name : kernels.names) std::cout << pretend::entry_of(name, name);
}
