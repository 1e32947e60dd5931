// Runs a program with a list of arguments, no shell between, and a deadline.
#pragma once
#include <string>
#include <vector>

namespace pretend {

struct Output {
  bool succeeded;
  std::string errors;  // what it wrote to stderr, and why it was ended
};

// Run arguments[0], found in PATH; its stdout goes to the file `out`. A file `errors` is used.
Output run(const std::vector<std::string>& arguments, const std::string& out,
           const std::string& errors, int deadline_s);

}  // namespace pretend
