// Files of one compilation, in a folder that is removed after it.
#pragma once
#include <string>

namespace pretend {

std::string read_file(const std::string& path);  // "" where there is none
void write_file(const std::string& path, const std::string& text);

class TemporaryFolder {
 public:
  TemporaryFolder();   // in TMPDIR or /tmp
  ~TemporaryFolder();  // PRETEND_KEEP=1 keeps it, and says where it is
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace pretend
