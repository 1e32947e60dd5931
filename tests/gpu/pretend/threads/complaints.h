// Messages about a kernel that no GPU could run; each ends the process.
#pragma once

namespace pretend {

class Block;

// "pretended GPU: ..." on stderr, then abort.
[[noreturn]] void complain(const char* format, ...) __attribute__((format(printf, 1, 2)));

// The same with the block's number, and where each of its threads waits.
[[noreturn]] void complain_of(const Block& block, const char* what);

}  // namespace pretend
