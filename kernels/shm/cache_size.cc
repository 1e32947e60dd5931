#include "cache_size.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace mpistrat {
namespace {

std::string read_line(const std::string& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

// "32768K" -> 33554432; 0 for what is no size.
int64_t parse_size(const std::string& text) {
  std::istringstream in(text);
  int64_t number = 0;
  char unit = 'B';
  if (!(in >> number) || number <= 0) return 0;
  in >> unit;
  return unit == 'K' ? number << 10 : unit == 'M' ? number << 20 : number;
}

// "0-3,8-11" -> 8
int64_t count_cpus(const std::string& list) {
  std::istringstream ranges(list);
  std::string range;
  int64_t count = 0;
  while (std::getline(ranges, range, ',')) {
    std::istringstream ends(range);
    int64_t first = 0, last = 0;
    char dash = 0;
    if (!(ends >> first)) continue;
    count += ends >> dash >> last ? last - first + 1 : 1;
  }
  return count;
}

}  // namespace

int64_t last_level_cache_bytes(int num_cpus, const std::string& folder) {
  for (int index = 4; index > 1; --index) {  // a second level is the last one of some
    const std::string cache = folder + "/index" + std::to_string(index);
    const int64_t nbytes = parse_size(read_line(cache + "/size"));
    const int64_t sharing = count_cpus(read_line(cache + "/shared_cpu_list"));
    if (nbytes > 0 && sharing > 0)
      return nbytes * std::max<int64_t>((num_cpus + sharing - 1) / sharing, 1);
  }
  return 0;
}

}  // namespace mpistrat
