#include "compiler/shared.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>

#include "compiler/files.h"

namespace pretend {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Two hashes, since a wrong object would be another kernel.
std::string name_of(const std::string& text) {
  const std::hash<std::string> hash;
  return std::to_string(hash(text)) + "-" + std::to_string(hash("again" + text));
}

// What cannot be locked in time is compiled by this process too: nobody waits for ever.
void lock_within(int lock, int deadline_s) {
  const auto end = Clock::now() + std::chrono::seconds(deadline_s);
  while (flock(lock, LOCK_EX | LOCK_NB) != 0 && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

}  // namespace

SharedObject::SharedObject(const std::string& text, int deadline_s) {
  const char* cache = std::getenv("CUPY_CACHE_DIR");
  if (!cache || !*cache) return;
  const fs::path folder = fs::path(cache) / "objects";
  fs::create_directories(folder);
  path_ = folder / name_of(text);
  lock_ = open((path_ + ".lock").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ >= 0) lock_within(lock_, deadline_s);
}

SharedObject::~SharedObject() {
  if (lock_ >= 0) close(lock_);
}

std::string SharedObject::bytes() const { return path_.empty() ? "" : read_file(path_); }

void SharedObject::keep(const std::string& bytes) const {
  if (path_.empty()) return;
  const std::string own = path_ + "." + std::to_string(getpid());
  write_file(own, bytes);
  fs::rename(own, path_);  // whole or not at all
}

}  // namespace pretend
