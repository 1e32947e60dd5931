#include "messages.h"

#include <cstring>

namespace mpistrat {

void Messages::send(const void* data, int64_t nbytes, int to, int tag, uint8_t* done) {
  uint8_t* request = add(done);
  check(mpi_.isend(data, static_cast<int>(nbytes), mpi_.byte, to, tag, mpi_.comm, request));
}

void Messages::receive(void* data, int64_t nbytes, int from, int tag, uint8_t* done) {
  uint8_t* request = add(done);
  check(mpi_.irecv(data, static_cast<int>(nbytes), mpi_.byte, from, tag, mpi_.comm, request));
}

void Messages::poll() {
  if (done_.empty() || error_ != 0) return;
  indices_.resize(done_.size());
  statuses_.resize(done_.size() * static_cast<size_t>(mpi_.status_bytes));
  int num_done = 0;
  check(mpi_.testsome(static_cast<int>(done_.size()), requests_.data(), &num_done, indices_.data(),
                      statuses_.data()));
  if (error_ != 0 || num_done <= 0) return;
  for (int i = 0; i < num_done; ++i) {
    uint8_t*& done = done_[static_cast<size_t>(indices_[static_cast<size_t>(i)])];
    *done = 1;
    done = nullptr;
  }
  num_completed_ += num_done;
  drop_completed();
}

uint8_t* Messages::add(uint8_t* done) {
  *done = 0;
  done_.push_back(done);
  requests_.resize(done_.size() * request_bytes());
  return request(done_.size() - 1);
}

// A message that was refused has no request; what follows an error is not looked at any more.
void Messages::check(int code) {
  if (code != 0 && error_ == 0) error_ = code;
}

void Messages::drop_completed() {
  size_t kept = 0;
  for (size_t i = 0; i < done_.size(); ++i) {
    if (!done_[i]) continue;
    if (kept != i) std::memcpy(request(kept), request(i), request_bytes());
    done_[kept++] = done_[i];
  }
  done_.resize(kept);
  requests_.resize(kept * request_bytes());
}

}  // namespace mpistrat
