#include "nccl/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <random>

#include "nccl/interface/errors.h"
#include "nccl/runtime.h"

namespace pretend {
namespace {

constexpr uint64_t kIdMagic = 0x6c63636e20656d61;
constexpr size_t kPage = 4096;

struct IdContents {
  uint64_t magic = 0, token = 0;
  Process maker;
  int fd = -1;

  IdContents() = default;
  explicit IdContents(const ncclUniqueId& id) {
    std::memcpy(static_cast<void*>(this), &id, sizeof *this);
  }
};
static_assert(sizeof(IdContents) <= sizeof(ncclUniqueId));

size_t whole_pages(size_t n) { return (n + kPage - 1) / kPage * kPage; }
size_t header_bytes() { return whole_pages(sizeof(SegmentHeader)); }
size_t channel_bytes(int ranks) { return whole_pages(sizeof(Channel) * ranks * ranks); }

// Descriptors of ids made here, by token.
struct Ids {
  std::mutex mutex;
  std::map<uint64_t, int> open;
};
Ids& ids() {
  static auto* const all = new Ids;
  return *all;
}

uint64_t random_token() {
  std::random_device random;
  return (uint64_t{random()} << 32 | random()) | 1;
}

// A file's first bytes in this process alone: enough to agree on the number of ranks.
struct HeaderView {
  explicit HeaderView(int fd)
      : at(mmap(nullptr, header_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) {}
  ~HeaderView() {
    if (valid()) munmap(at, header_bytes());
  }
  bool valid() const { return at != MAP_FAILED; }
  SegmentHeader& header() const { return *static_cast<SegmentHeader*>(at); }
  void* at;
};

ncclResult_t check_header(int fd, const IdContents& id, int ranks) {
  const HeaderView view(fd);
  if (!view.valid() || view.header().token != id.token)
    return complain(ncclSystemError, "the unique id is stale: its communicator was made already");
  int before = 0;
  if (!view.header().ranks.compare_exchange_strong(before, ranks) && before != ranks)
    return complain(
        ncclInvalidArgument,
        text("a communicator of %d ranks was asked for, another rank gave %d", ranks, before));
  return ncclSuccess;
}

}  // namespace

ncclResult_t Segment::make_id(ncclUniqueId* id) {
  const int fd = memfd_create("pretend-nccl", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(header_bytes()))) {
    if (fd >= 0) close(fd);
    return complain(ncclSystemError, text("no shared memory for a unique id: %s", strerror(errno)));
  }
  IdContents contents;
  contents.magic = kIdMagic;
  contents.token = random_token();
  contents.maker = Process::self();
  contents.fd = fd;
  {
    const HeaderView view(fd);
    if (!view.valid()) {
      close(fd);
      return complain(ncclSystemError, "no address space for a unique id");
    }
    view.header().token = contents.token;
  }
  std::memset(id, 0, sizeof *id);
  std::memcpy(id, &contents, sizeof contents);
  const std::lock_guard lock(ids().mutex);
  ids().open[contents.token] = fd;
  return ncclSuccess;
}

ncclResult_t Segment::open(const ncclUniqueId& id, int ranks) {
  const IdContents contents(id);
  if (contents.magic != kIdMagic)
    return complain(ncclInvalidArgument, "these bytes are no unique id of ncclGetUniqueId");
  maker_ = contents.maker;
  if (maker_.has_ended())
    return complain(ncclSystemError,
                    text("process %d, which made the unique id, has ended", maker_.pid));
  const std::string path = text("/proc/%d/fd/%d", contents.maker.pid, contents.fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0)
    return complain(ncclSystemError, text("the unique id cannot be opened (%s): has it been used?",
                                          strerror(errno)));
  ncclResult_t result = check_header(fd, contents, ranks);
  const size_t n = header_bytes() + channel_bytes(ranks) + ranks * ranks * kMessageBytes +
                   2 * ranks * kSlotBytes;
  if (result == ncclSuccess && ftruncate(fd, static_cast<off_t>(n)))
    result = complain(ncclSystemError, text("shared memory cannot grow: %s", strerror(errno)));
  if (result == ncclSuccess && share(fd, n, &base_))
    result = complain(ncclSystemError, text("%zu bytes of shared memory cannot be mapped", n));
  close(fd);
  ranks_ = ranks;
  nbytes_ = n;
  return result;
}

void Segment::release_id(const ncclUniqueId& id) {
  const IdContents contents(id);
  const std::lock_guard lock(ids().mutex);
  const auto found = ids().open.find(contents.token);
  if (found == ids().open.end()) return;
  close(found->second);
  ids().open.erase(found);
}

Segment::~Segment() {
  if (base_) unshare(base_, nbytes_);
}

Channel& Segment::channel(int from, int to) const {
  auto* const first = reinterpret_cast<Channel*>(static_cast<char*>(base_) + header_bytes());
  return first[from * ranks_ + to];
}

char* Segment::message(int from, int to) const {
  return static_cast<char*>(base_) + header_bytes() + channel_bytes(ranks_) +
         (static_cast<size_t>(from) * ranks_ + to) * kMessageBytes;
}

char* Segment::slot(int rank) const { return message(ranks_, 0) + rank * kSlotBytes; }

char* Segment::result(int rank) const { return slot(ranks_) + rank * kSlotBytes; }

}  // namespace pretend
