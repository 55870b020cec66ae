// Starts this program again as a child that serves requests: for measurements in another kind of process,
// for example one with a preloaded library, interleaved with the rows of this process.
//
// The child runs as "PROGRAM --serve=KIND" and communicates over its standard input and output. The parent
// ignores SIGPIPE and treats a child that has ended as a failed request.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace hydrant::bench {

// Writes all bytes; false if the other end has closed.
inline bool write_all(int file, const void* bytes, size_t count) {
  const auto* at = static_cast<const char*>(bytes);
  while (count != 0) {
    const ssize_t done = write(file, at, count);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    count -= static_cast<size_t>(done);
  }
  return true;
}

inline bool read_all(int file, void* bytes, size_t count) {
  auto* at = static_cast<char*>(bytes);
  while (count != 0) {
    const ssize_t done = read(file, at, count);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    count -= static_cast<size_t>(done);
  }
  return true;
}

// Not thread-safe: one thread per object.
class ServingChild {
 public:
  // `preload` is the library to preload, "" for none, even if this process has one preloaded.
  ServingChild(const std::string& kind, const std::string& preload) {
    signal(SIGPIPE, SIG_IGN);
    int requests[2];
    int answers[2];
    if (pipe(requests) != 0 || pipe(answers) != 0) return;
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, requests[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, answers[1], STDOUT_FILENO);
    for (const int fd : {requests[0], requests[1], answers[0], answers[1]}) {
      posix_spawn_file_actions_addclose(&files, fd);
    }
    std::string option = "--serve=" + kind;
    std::string program = "serving_child";
    char* const arguments[] = {program.data(), option.data(), nullptr};
    std::string preloaded = "LD_PRELOAD=" + preload;
    std::vector<char*> environment{preloaded.data()};
    for (char** entry = environ; *entry != nullptr; ++entry) {
      if (std::strncmp(*entry, "LD_PRELOAD=", 11) != 0) environment.push_back(*entry);
    }
    environment.push_back(nullptr);
    if (posix_spawn(&pid_, "/proc/self/exe", &files, nullptr, arguments, environment.data()) != 0) {
      pid_ = -1;
    }
    posix_spawn_file_actions_destroy(&files);
    close(requests[0]);
    close(answers[1]);
    request_ = requests[1];
    answer_ = answers[0];
  }
  ~ServingChild() {
    close(request_);
    close(answer_);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }
  ServingChild(const ServingChild&) = delete;
  ServingChild& operator=(const ServingChild&) = delete;

  // False if the child has ended.
  bool send(const void* bytes, size_t count) const { return write_all(request_, bytes, count); }
  bool receive(void* bytes, size_t count) const { return read_all(answer_, bytes, count); }

 private:
  pid_t pid_ = -1;
  int request_ = -1;
  int answer_ = -1;
};

}  // namespace hydrant::bench
