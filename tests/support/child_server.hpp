// A second process that serves a test: tests map its memory, and kill it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <sys/types.h>

namespace hydrant::testing {

// An end of a socket that preserves message boundaries. Every wait is limited to a minute.
class MessageSocket {
 public:
  explicit MessageSocket(int fd) : fd_(fd) {}
  ~MessageSocket();
  MessageSocket(const MessageSocket&) = delete;
  MessageSocket& operator=(const MessageSocket&) = delete;

  // Sends a message. False if the other end has closed, or the message is too long for the socket.
  bool say(const void* bytes, size_t len);
  bool say(const std::string& text) { return say(text.data(), text.size()); }
  // The next message; "" if the other end has closed or sends no message for a minute.
  std::string hear();
  // Whether a message is available now.
  bool has_message();

 private:
  int fd_;
};

// Forks; the child runs body(talk) and leaves with _exit(), so no part of the test program runs twice.
// Requires: the body needs no other threads. The destructor kills the child if it still runs.
class OtherProcess {
 public:
  explicit OtherProcess(const std::function<void(MessageSocket&)>& body);
  ~OtherProcess();
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;

  MessageSocket& talk() { return talk_; }
  std::string ask(const std::string& text) { return talk_.say(text) ? talk_.hear() : ""; }
  pid_t pid() const { return pid_; }
  // Sends SIGKILL and waits until the process has ended.
  void kill();
  // Waits for the process: "" if it exited by itself with 0, else how it ended.
  std::string end();

 private:
  OtherProcess(const std::function<void(MessageSocket&)>& body, const int (&ends)[2]);

  pid_t pid_ = -1;
  MessageSocket talk_;
};

}  // namespace hydrant::testing
