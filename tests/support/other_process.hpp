// A process beside the test's own that serves it: memory of another process that tests map, and kill.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <sys/types.h>

namespace hydrant::testing {

// The end of a socket that keeps messages apart. Nothing waits longer than a minute.
class Talk {
 public:
  explicit Talk(int fd) : fd_(fd) {}
  ~Talk();
  Talk(const Talk&) = delete;
  Talk& operator=(const Talk&) = delete;

  // False when the other end is gone, or the message is too long for a socket.
  bool say(const void* bytes, size_t len);
  bool say(const std::string& text) { return say(text.data(), text.size()); }
  // The next message; "" when the other end is gone or says nothing for a minute.
  std::string hear();
  // Whether there is one now.
  bool has_word();

 private:
  int fd_;
};

// Forks; the child runs body(talk) and leaves with _exit(): nothing of the test program runs twice. Requires
// no other threads that the body needs. Ended with SIGKILL, if not before, when this object goes.
class OtherProcess {
 public:
  explicit OtherProcess(const std::function<void(Talk&)>& body);
  ~OtherProcess();
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  Talk& talk() { return talk_; }
  std::string ask(const std::string& text) { return talk_.say(text) ? talk_.hear() : ""; }
  pid_t pid() const { return pid_; }
  // kill -9, and waits until it is gone.
  void kill();
  // Waits for it: "" if it left by itself, with 0, or how it ended.
  std::string end();

 private:
  OtherProcess(const std::function<void(Talk&)>& body, const int (&ends)[2]);

  pid_t pid_ = -1;
  Talk talk_;
};

}  // namespace hydrant::testing
