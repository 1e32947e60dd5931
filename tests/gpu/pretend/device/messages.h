// Messages with files over Unix sockets that keep the ends of messages (SOCK_SEQPACKET).
#pragma once

#include <cstddef>

namespace pretend {

// Send `nbytes`, and a file unless it is -1. Whether that worked.
bool send_message(int socket, const void* data, size_t nbytes, int file = -1);

// Receive a message of at most `nbytes`; its length, or 0 where the other side has ended. The file
// that came with it, or -1, goes to `file`.
size_t receive_message(int socket, void* data, size_t nbytes, int* file);

}  // namespace pretend
