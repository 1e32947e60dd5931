#include "start_watch.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "clock.h"

namespace mpistrat {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(250);
constexpr unsigned kEndsWithin_s = 5;

double now_s() { return static_cast<double>(now_ns()) * 1e-9; }

// Returns how many child processes a process has; -1 if the system does not tell.
int num_children(pid_t pid) {
  const std::string id = std::to_string(pid);
  std::ifstream file("/proc/" + id + "/task/" + id + "/children");
  if (!file) return -1;
  int count = 0;
  for (std::string child; file >> child;) ++count;
  return count;
}

// A process's name and parent; of one that has ended the parent is 0.
std::pair<std::string, pid_t> name_and_parent(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t begin = line.find('('), end = line.rfind(')');
  if (end == std::string::npos) return {"", 0};
  std::istringstream rest(line.substr(end + 1));
  char state;
  pid_t parent = 0;
  rest >> state >> parent;
  return {line.substr(begin + 1, end - begin - 1), parent};
}

// Whether a process belongs to a job of another launcher than `launcher`, by its ancestors.
bool is_of_another(pid_t pid, pid_t launcher) {
  const std::string kind = name_and_parent(launcher).first;
  while (pid > 1 && pid != launcher) {
    const auto [name, parent] = name_and_parent(pid);
    if (name == kind) return true;
    pid = parent;
  }
  return false;
}

std::string in_words(const std::set<int>& ranks) {
  std::ostringstream text;
  text << (ranks.size() == 1 ? "rank " : "ranks ");
  bool is_first = true;
  for (int rank : ranks) {
    text << (is_first ? "" : ", ") << rank;
    is_first = false;
  }
  return text.str();
}

std::string as_text(double seconds) {
  std::ostringstream text;
  text << seconds;
  return text.str();
}

}  // namespace

void StartWatch::end() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StartWatch::run() {
  const double began_s = now_s();
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, kLookEvery, [this] { return is_over_; })) {
    if (has_lost_a_rank(now_s()))
      leave(" cannot start MPI: a rank of this node has ended before it did" + missing() +
            "; see what it has printed");
    if (now_s() - began_s > facts_.timeout_s)
      leave(" has waited " + as_text(facts_.timeout_s) +
            " s (MPISTRAT_TIMEOUT) for the other ranks to start MPI" + missing() +
            "; make the first strategy on all ranks, before what takes long");
  }
}

// A launcher starts its ranks one by one, so that at first it has too few of them; and what it
// starts may leave the rank to another process.
bool StartWatch::has_lost_a_rank(double now_s) {
  const int children = facts_.launcher ? num_children(facts_.launcher) : -1;
  if (children < 0 || children >= facts_.num_here) {
    few_since_s_ = -1;
    return false;
  }
  if (few_since_s_ < 0) few_since_s_ = now_s;
  if (now_s - few_since_s_ <= facts_.ended_after_s) return false;
  if (!may_one_come()) return true;
  few_since_s_ = now_s;
  return false;
}

// Whether a process of this user is a rank that has not begun.
bool StartWatch::may_one_come() const {
  const std::set<int> ranks = begun();
  const std::string key = std::string(1, '\0') + facts_.variable + "=";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    std::ifstream file(entry.path() / "environ", std::ios::binary);
    std::stringstream text;
    if (!file || !(text << '\0' << file.rdbuf())) continue;
    const std::string environment = text.str();
    const size_t at = environment.find(key);
    if (at == std::string::npos) continue;
    const bool has_begun = ranks.count(std::atoi(environment.c_str() + at + key.size()));
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (!has_begun && !is_of_another(pid, facts_.launcher)) return true;
  }
  return false;
}

// The ranks of this node that have begun to start MPI, and not left.
std::set<int> StartWatch::begun() const {
  std::set<int> ranks;
  std::ifstream file(facts_.file);
  int rank;
  for (std::string state; file >> rank >> state;)
    if (state != "left") ranks.insert(rank);
  return ranks;
}

// Says which ranks have not begun, as far as this node can tell.
std::string StartWatch::missing() const {
  const std::set<int> ranks = begun();
  if (ranks.empty()) return "";
  if (facts_.num_here != facts_.num_ranks)
    return "; of the ranks of this node " + in_words(ranks) +
           (ranks.size() == 1 ? " has" : " have") + " begun to";
  std::set<int> rest;
  for (int rank = 0; rank < facts_.num_ranks; ++rank)
    if (!ranks.count(rank)) rest.insert(rank);
  if (rest.empty()) return "; all have begun to";
  return "; " + in_words(rest) + (rest.size() == 1 ? " has" : " have") + " not begun to";
}

// By a signal: launchers do not mind a rank that exits before MPI has started.
void StartWatch::leave(const std::string& why) const {
  const std::string line = "[mpistrat] " + facts_.me + why + "\n";
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) {
    // Nobody can be told.
  }
  if (!facts_.file.empty()) unlink(facts_.file.c_str());
  signal(SIGTERM, SIG_DFL);
  kill(getpid(), SIGTERM);
  sleep(kEndsWithin_s);
  _exit(1);
}

}  // namespace mpistrat
