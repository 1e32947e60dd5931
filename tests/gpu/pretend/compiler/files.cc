#include "compiler/files.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace pretend {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path + ": " + std::strerror(errno));
}

TemporaryFolder::TemporaryFolder()
    : path_(std::filesystem::temp_directory_path() / "pretend-hiprtc-XXXXXX") {
  if (!mkdtemp(path_.data()))
    throw std::runtime_error("cannot make a folder " + path_ + ": " + std::strerror(errno));
}

TemporaryFolder::~TemporaryFolder() {
  const char* keep = std::getenv("PRETEND_KEEP");
  if (keep && !std::strcmp(keep, "1")) {
    std::fprintf(stderr, "pretended hipRTC: kept %s\n", path_.c_str());
    return;
  }
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace pretend
