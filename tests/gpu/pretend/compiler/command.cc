#include "compiler/command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "compiler/files.h"

extern char** environ;

namespace pretend {
namespace {

// Not a sanitizer or a profiler that was loaded into the user's program; messages in English.
std::vector<char*> environment() {
  static char language[] = "LC_ALL=C";
  std::vector<char*> result;
  for (char** variable = environ; *variable; ++variable)
    if (std::strncmp(*variable, "LD_PRELOAD=", 11) != 0 &&
        std::strncmp(*variable, "LC_ALL=", 7) != 0)
      result.push_back(*variable);
  result.push_back(language);
  result.push_back(nullptr);
  return result;
}

pid_t start(const std::vector<std::string>& arguments, const std::string& out,
            const std::string& errors) {
  std::vector<char*> list;
  for (const std::string& argument : arguments) list.push_back(const_cast<char*>(argument.c_str()));
  list.push_back(nullptr);
  constexpr int kWrite = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, out.c_str(), kWrite, 0600);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, errors.c_str(), kWrite, 0600);
  posix_spawnattr_t attributes;  // a group of its own, to be ended with its children
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t pid = 0;
  const int error =
      posix_spawnp(&pid, list[0], &files, &attributes, list.data(), environment().data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error)
    throw std::runtime_error("cannot start " + arguments[0] + ": " + std::strerror(error) +
                             "; kernels of the pretended GPU need it in PATH");
  return pid;
}

// Wait until the process ends; false at the deadline.
bool wait_for(pid_t pid, int deadline_s) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(deadline_s);
  bool ended = false;
  while (!ended) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0) break;
    if (fd >= 0) {
      pollfd waited{fd, POLLIN, 0};
      ended = poll(&waited, 1, static_cast<int>(left.count())) == 1;
    } else {  // a kernel before 5.3
      siginfo_t info{};
      ended = waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid;
      if (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  if (fd >= 0) close(fd);
  return ended;
}

}  // namespace

Output run(const std::vector<std::string>& arguments, const std::string& out,
           const std::string& errors, int deadline_s) {
  const pid_t pid = start(arguments, out, errors);
  const bool ended = wait_for(pid, deadline_s);
  if (!ended) kill(-pid, SIGKILL);
  int status = 0;
  pid_t waited;
  while ((waited = waitpid(pid, &status, 0)) < 0 && errno == EINTR) continue;
  // The user's program ignores SIGCHLD, or waits for any child: the status is lost; g++ removes the
  // file that it could not make.
  const bool lost = waited != pid;
  std::string text = read_file(errors);
  if (!ended)
    text += arguments[0] + " was ended after " + std::to_string(deadline_s) + " s\n";
  else if (!lost && WIFSIGNALED(status))
    text += arguments[0] + " was ended by signal " + std::to_string(WTERMSIG(status)) + "\n";
  return {ended && (lost || (WIFEXITED(status) && WEXITSTATUS(status) == 0)), text};
}

}  // namespace pretend
