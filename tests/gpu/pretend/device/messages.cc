#include "device/messages.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pretend {
namespace {
union Control {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};
}  // namespace

bool send_message(int socket, const void* data, size_t nbytes, int file) {
  iovec part = {const_cast<void*>(data), nbytes};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Control control = {};
  if (file >= 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof file);
    memcpy(CMSG_DATA(header), &file, sizeof file);
  }
  ssize_t sent;
  do sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(nbytes);
}

size_t receive_message(int socket, void* data, size_t nbytes, int* file) {
  iovec part = {data, nbytes};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Control control = {};
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  ssize_t got;
  do got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  *file = -1;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (got > 0 && header && header->cmsg_type == SCM_RIGHTS)
    memcpy(file, CMSG_DATA(header), sizeof *file);
  return got > 0 ? static_cast<size_t>(got) : 0;
}

}  // namespace pretend
