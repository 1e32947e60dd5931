#ifndef MPISTRAT_COMMON_START_WATCH_H_
#define MPISTRAT_COMMON_START_WATCH_H_

// End a rank whose MPI_Init waits for ranks that do not come. MPI_Init has no deadline, and mpi4py
// calls it with Python's lock held, so that nothing written in Python runs meanwhile.

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <thread>

namespace mpistrat {

class StartWatch {
 public:
  struct Facts {
    std::string me;           // "rank 0/2"
    std::string variable;     // in which the launcher names the rank: "PMI_RANK"
    std::string file;         // lines of ranks of this node that have begun: "0 starts"; may be ""
    int num_here, num_ranks;  // ranks of this node, 0 if that is not known, and of the job
    pid_t launcher;           // whose children are the ranks of this node; 0 if that is not known
    double timeout_s;
    double ended_after_s;  // so long the launcher has fewer children than ranks
  };

  explicit StartWatch(Facts facts) : facts_(std::move(facts)), thread_([this] { run(); }) {}
  ~StartWatch() { end(); }

  // MPI has started. May be called twice.
  void end();

 private:
  void run();
  bool has_lost_a_rank(double now_s);
  std::set<int> begun() const;
  bool may_one_come() const;
  std::string missing() const;
  [[noreturn]] void leave(const std::string& why) const;

  const Facts facts_;
  double few_since_s_ = -1;
  bool is_over_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace mpistrat

#endif  // MPISTRAT_COMMON_START_WATCH_H_
