#include "threads/settings.h"

#include <cstdlib>
#include <cstring>

#include "threads/complaints.h"

namespace pretend {
namespace {

unsigned long number(const char* name, unsigned long missing, unsigned long least,
                     unsigned long most) {
  const char* text = std::getenv(name);
  if (!text || !*text) return missing;
  char* end = nullptr;
  const unsigned long value = std::strtoul(text, &end, 10);
  if (*end || *text == '-' || value < least || value > most)
    complain("%s is \"%s\": expected a number from %lu to %lu", name, text, least, most);
  return value;
}

Order read_order() {
  const char* text = std::getenv("PRETEND_ORDER");
  if (!text || !*text || !std::strcmp(text, "numbered")) return {Order::Kind::kNumbered, 0};
  if (!std::strcmp(text, "reversed")) return {Order::Kind::kReversed, 0};
  char* end = nullptr;
  const unsigned long seed = std::strtoul(text, &end, 10);
  if (*end || *text == '-')
    complain("PRETEND_ORDER is \"%s\": expected numbered, reversed or a number", text);
  return {Order::Kind::kShuffled, static_cast<unsigned>(seed)};
}

}  // namespace

Order order() {
  static const Order value = read_order();
  return value;
}

unsigned resident_blocks() {
  static const auto value = static_cast<unsigned>(number("PRETEND_RESIDENT", 64, 1, 4096));
  return value;
}

size_t stack_bytes() {
#ifdef PRETEND_ASAN
  constexpr unsigned long kKib = 512;  // its frames are larger
#else
  constexpr unsigned long kKib = 128;
#endif
  static const size_t value = number("PRETEND_STACK_KIB", kKib, 16, 1 << 20) / 4 * 4096;
  return value;
}

}  // namespace pretend
