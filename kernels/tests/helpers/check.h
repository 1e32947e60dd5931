#ifndef MPISTRAT_TESTS_HELPERS_CHECK_H_
#define MPISTRAT_TESTS_HELPERS_CHECK_H_

// CHECK, which ends a test that fails and prints where.

#include <cstdio>
#include <cstdlib>

// Ends the test with the place and the condition, unless it holds.
#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                \
    }                                                                              \
  } while (false)

// The same with printf's arguments, which say where in a loop it happened.
#define CHECK_AT(condition, ...)               \
  do {                                         \
    if (!(condition)) {                        \
      std::fprintf(stderr, "at " __VA_ARGS__); \
      std::fputc('\n', stderr);                \
      CHECK(condition);                        \
    }                                          \
  } while (false)

#endif  // MPISTRAT_TESTS_HELPERS_CHECK_H_
