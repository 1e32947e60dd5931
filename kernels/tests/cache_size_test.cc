// The size of the last-level caches (cache_size.h), read from made-up folders.

#include "../shm/cache_size.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "helpers/check.h"

namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path;

  Folder() {
    char name[] = "/tmp/mpistrat-caches-XXXXXX";
    CHECK(mkdtemp(name));
    path = name;
  }
  ~Folder() { fs::remove_all(path); }

  void add(const char* index, const char* size, const char* cpus) const {
    fs::create_directory(path / index);
    std::ofstream(path / index / "size") << size << "\n";
    std::ofstream(path / index / "shared_cpu_list") << cpus << "\n";
  }
  int64_t bytes(int num_cpus) const { return mpistrat::last_level_cache_bytes(num_cpus, path); }
};

void check_of_its_processors() {
  Folder folder;
  folder.add("index2", "1024K", "0");
  CHECK(folder.bytes(3) == 3 << 20);  // each has its own
  folder.add("index3", "32768K", "0-3,8-11");
  CHECK(folder.bytes(1) == 32 << 20);
  CHECK(folder.bytes(8) == 32 << 20);
  CHECK(folder.bytes(9) == 64 << 20);
  folder.add("index3", "2M", "0,4");
  CHECK(folder.bytes(4) == 4 << 20);
}

void check_what_is_no_description() {
  Folder folder;
  CHECK(folder.bytes(2) == 0);
  folder.add("index3", "much", "0-1");
  folder.add("index2", "-1K", "0-1");
  CHECK(folder.bytes(2) == 0);
  folder.add("index3", "32M", "");
  CHECK(folder.bytes(2) == 0);
}

}  // namespace

int main() {
  check_of_its_processors();
  check_what_is_no_description();
  CHECK(mpistrat::last_level_cache_bytes(2) >= 0);
}
