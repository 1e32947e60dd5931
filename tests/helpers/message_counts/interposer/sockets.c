// What goes out by sockets, beside what MPI's own libraries send.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <sys/socket.h>

#include "counts.h"

typedef ssize_t (*SendTo)(int, const void*, size_t, int, const struct sockaddr*, socklen_t);
typedef ssize_t (*SendMsg)(int, const struct msghdr*, int);
typedef int (*Connect)(int, const struct sockaddr*, socklen_t);

static const char* const kOfMpi[] = {"libmpi",   "libfabric", "libuc",    "libopen-",
                                     "libevent", "libpmix",   "libprrte", NULL};

// What MPI's own libraries send is not the program's.
static int is_of_mpi(const void* caller) {
  Dl_info found;
  if (!dladdr(caller, &found) || !found.dli_fname) return 0;
  for (const char* const* name = kOfMpi; *name; ++name)
    if (strstr(found.dli_fname, *name)) return 1;
  return 0;
}

static void note_write(int fd, ssize_t nbytes, const void* caller) {
  int type = 0;
  socklen_t length = sizeof type;
  if (nbytes < 0 || is_of_mpi(caller)) return;
  getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length);
  note_socket(type == SOCK_DGRAM ? kDatagram : kWrite, nbytes);
}

ssize_t sendto(int fd, const void* data, size_t nbytes, int flags, const struct sockaddr* to,
               socklen_t length) {
  const ssize_t sent = ((SendTo)dlsym(RTLD_NEXT, "sendto"))(fd, data, nbytes, flags, to, length);
  note_write(fd, sent, __builtin_return_address(0));
  return sent;
}

ssize_t send(int fd, const void* data, size_t nbytes, int flags) {
  const ssize_t sent = ((SendTo)dlsym(RTLD_NEXT, "sendto"))(fd, data, nbytes, flags, NULL, 0);
  note_write(fd, sent, __builtin_return_address(0));
  return sent;
}

ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  const ssize_t sent = ((SendMsg)dlsym(RTLD_NEXT, "sendmsg"))(fd, message, flags);
  note_write(fd, sent, __builtin_return_address(0));
  return sent;
}

int connect(int fd, const struct sockaddr* to, socklen_t length) {
  const int code = ((Connect)dlsym(RTLD_NEXT, "connect"))(fd, to, length);
  if (code == 0 && !is_of_mpi(__builtin_return_address(0))) note_socket(kConnection, 0);
  return code;
}
