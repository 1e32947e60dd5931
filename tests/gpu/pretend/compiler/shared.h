// Objects that ranks ask for at the same time are compiled by one of them.
#pragma once
#include <string>

namespace pretend {

// The object of one text and its options, in CUPY_CACHE_DIR; without that each process compiles.
class SharedObject {
 public:
  // Waits while another process compiles the same, for at most so many seconds.
  SharedObject(const std::string& text, int deadline_s);
  ~SharedObject();
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;

  std::string bytes() const;  // "" where it has to be compiled
  void keep(const std::string& bytes) const;

 private:
  std::string path_;
  int lock_ = -1;  // ends with the process
};

}  // namespace pretend
