// Encodes, checks, sends and receives the messages between a rank and its supervisor (wire.hpp).
#include "rdma/bootstrap/wire.hpp"

#include "firehose/base/thread.hpp"
#include "firehose/base/uncancelled.hpp"

#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

namespace hydrant::launch {
namespace {

// Reads the head of type T of `message`; false if too short, or if the magic differs.
template <class T>
bool read_head(std::span<const std::byte> message, T* head) noexcept {
  if (message.size() < sizeof(T)) return false;
  std::memcpy(head, message.data(), sizeof(T));
  return head->magic == kMagic;
}

bool wait_for(int fd, short events, uint64_t deadline_ns) noexcept {
  for (;;) {
    const uint64_t now = now_ns();
    const uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
    timespec time{};
    time.tv_sec = static_cast<time_t>(left / 1'000'000'000);
    time.tv_nsec = static_cast<long>(left % 1'000'000'000);
    pollfd one{fd, events, 0};
    const int ready = uncancelled::ppoll(&one, 1, &time, nullptr);
    if (ready > 0)
      return true;  // also for an error or the end of the connection: the caller's next call reports it
    if (ready == 0) return false;
    if (errno != EINTR) return true;
  }
}

void close_all(const cmsghdr* descriptors) noexcept {
  const unsigned char* data = CMSG_DATA(descriptors);
  for (size_t at = CMSG_LEN(0); at + sizeof(int) <= descriptors->cmsg_len; at += sizeof(int)) {
    int one = -1;
    std::memcpy(&one, data, sizeof one);
    data += sizeof one;
    uncancelled::close(one);
  }
}

}  // namespace

bool read_request(std::span<const std::byte> message, Request* request,
                  std::span<const std::byte>* tail) noexcept {
  Request got;
  if (!read_head(message, &got)) return false;
  const auto rest = message.subspan(sizeof got);
  if (rest.size() != got.value_bytes || rest.size() > Bootstrap::kMaxValueBytes) return false;
  const bool has_key = got.kind == RequestKind::kPut || got.kind == RequestKind::kGet;
  switch (got.kind) {
    case RequestKind::kHello:
    case RequestKind::kFence:
    case RequestKind::kGet:
      if (!rest.empty()) return false;
      break;
    case RequestKind::kPut: break;
    default: return false;
  }
  const size_t key_bytes = strnlen(got.key, kKeyRoom);
  if (key_bytes == kKeyRoom || has_key != (key_bytes > 0)) return false;
  *request = got;
  *tail = rest;
  return true;
}

bool read_reply(std::span<const std::byte> message, Reply* reply,
                std::span<const std::byte>* tail) noexcept {
  Reply got;
  if (!read_head(message, &got)) return false;
  const auto rest = message.subspan(sizeof got);
  if (rest.size() != got.bytes || rest.size() > Bootstrap::kMaxValueBytes) return false;
  switch (static_cast<Status>(got.status)) {
    case Status::kOk:
    case Status::kResource:
    case Status::kBadArg:
    case Status::kNotReady:
    case Status::kBroken: break;
    default: return false;
  }
  *reply = got;
  *tail = rest;
  return true;
}

bool read_event(std::span<const std::byte> message, Event* event) noexcept {
  Event got;
  if (message.size() != sizeof got || !read_head(message, &got)) return false;
  if (got.kind < EventKind::kExit || got.kind > EventKind::kStartFailure) return false;
  if (got.how > ExitReason::kAbandoned) return false;
  *event = got;
  return true;
}

bool set_key(std::string_view key, Request* request) noexcept {
  if (key.empty() || key.size() >= kKeyRoom || key.find('\0') != key.npos) return false;
  std::memset(request->key, 0, kKeyRoom);
  std::memcpy(request->key, key.data(), key.size());
  return true;
}

int send_message(int fd, std::span<const std::byte> head,
                 std::span<const std::byte> tail) noexcept {
  // sendmsg() only reads them, although iovec is not const.
  iovec parts[2] = {{const_cast<std::byte*>(head.data()), head.size()},
                    {const_cast<std::byte*>(tail.data()), tail.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = tail.empty() ? 1 : 2;
  for (;;) {
    if (uncancelled::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return 0;
    if (errno != EINTR) return errno;
  }
}

Received receive_message(int fd, MessageRoom* room, std::span<const std::byte>* got,
                         int* pid) noexcept {
  *got = {};
  iovec part{room->data(), room->size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t bytes = 0;
  do {
    bytes = uncancelled::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (bytes < 0 && errno == EINTR);
  if (bytes < 0) return errno == EAGAIN ? Received::kNothing : Received::kEnd;
  if (pid != nullptr) *pid = 0;
  for (cmsghdr* part_head = CMSG_FIRSTHDR(&message); part_head != nullptr;
       part_head = CMSG_NXTHDR(&message, part_head)) {
    if (part_head->cmsg_level != SOL_SOCKET) continue;
    if (part_head->cmsg_type == SCM_CREDENTIALS && pid != nullptr) {
      ucred sender{};
      std::memcpy(&sender, CMSG_DATA(part_head), sizeof sender);
      *pid = sender.pid;
    } else if (part_head->cmsg_type == SCM_RIGHTS) {
      close_all(part_head);  // no valid message has descriptors: closes unexpected ones
    }
  }
  // Valid messages are never empty, so 0 bytes mean the end of the connection.
  if (bytes == 0) return Received::kEnd;
  *got = std::span<const std::byte>(*room).first(static_cast<size_t>(bytes));
  return Received::kMessage;
}

bool wait_readable(int fd, uint64_t deadline_ns) noexcept {
  return wait_for(fd, POLLIN, deadline_ns);
}

bool wait_writable(int fd, uint64_t deadline_ns) noexcept {
  return wait_for(fd, POLLOUT, deadline_ns);
}

}  // namespace hydrant::launch
