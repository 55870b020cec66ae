#include "rdma/exit/node_channel.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/bootstrap/abstract_socket.hpp"
#include "rdma/launch/wire.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr uint32_t kHandshakeMagic = 0x48594e43;
constexpr uint64_t kRetryNs = 2'000'000;

// On the leader's card.
struct LeaderCard {
  RandomName name{};
  RandomName token{};
};

// What a member says first, and what comes back with the descriptor.
struct Handshake {
  uint32_t magic = kHandshakeMagic;
  Rank rank = 0;
  RandomName token{};
};

class OwnedFd {
 public:
  explicit OwnedFd(int fd) noexcept : fd_(fd) {}
  ~OwnedFd() {
    if (fd_ >= 0) close(fd_);
  }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  int get() const noexcept { return fd_; }

 private:
  const int fd_;
};

bool same_user(int socket) noexcept {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

int open_socket() noexcept {
  return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

std::string card_key(uint32_t sequence) { return "fd." + std::to_string(sequence); }

// Sends a handshake with a descriptor. True if it went out.
bool send_fd(int socket, const Handshake& handshake, int fd) noexcept {
  Handshake copy = handshake;
  iovec part{&copy, sizeof copy};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof copy);
}

// ---- the first rank of a node ----

// Takes one connection, if it is one of the ranks that are missing; answers its rank, else kNoRank.
Rank serve_one(int connection, const LeaderCard& card, int fd, const std::vector<Rank>& missing,
               uint64_t deadline_ns) noexcept {
  if (!same_user(connection)) return kNoRank;
  // A peer that connects and says nothing keeps the others waiting for a second at most.
  constexpr uint64_t kHandshakeNs = 1'000'000'000;
  Handshake handshake;
  if (!launch::wait_readable(connection, std::min(deadline_ns, now_ns() + kHandshakeNs)))
    return kNoRank;
  // With MSG_TRUNC the length is that of the message.
  if (recv(connection, &handshake, sizeof handshake, MSG_TRUNC) != sizeof handshake) return kNoRank;
  if (handshake.magic != kHandshakeMagic || handshake.token != card.token) return kNoRank;
  const Rank rank = handshake.rank;
  if (std::find(missing.begin(), missing.end(), rank) == missing.end()) return kNoRank;
  return send_fd(connection, handshake, fd) ? rank : kNoRank;
}

std::string name_ranks(const std::vector<Rank>& ranks) {
  constexpr size_t kNamed = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size() && i < kNamed; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  if (ranks.size() > kNamed) text += " and " + std::to_string(ranks.size() - kNamed) + " more";
  return text;
}

Status serve_members(const JobPlace& place, int listener, const LeaderCard& card, int fd,
                     uint64_t deadline_ns) noexcept {
  std::vector<Rank> missing = place.node_ranks;
  missing.erase(missing.begin());  // this one
  while (!missing.empty()) {
    if (!launch::wait_readable(listener, deadline_ns)) {
      return fail(Status::kNotReady,
                  "%s of this node did not connect in time for the shared memory; see the messages "
                  "of these ranks",
                  name_ranks(missing).c_str());
    }
    const OwnedFd connection(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.get() < 0) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) continue;
      return fail(Status::kResource, "accept4() for %s: %s", name_ranks(missing).c_str(),
                  errno_text(errno));
    }
    const Rank rank = serve_one(connection.get(), card, fd, missing, deadline_ns);
    missing.erase(std::remove(missing.begin(), missing.end(), rank), missing.end());
  }
  return Status::kOk;
}

Status lead(Bootstrap& bootstrap, uint32_t sequence, int fd, int* received,
            uint64_t deadline_ns) noexcept {
  const JobPlace& place = bootstrap.place();
  const LeaderCard card{.name = make_random_name(), .token = make_random_name()};
  const OwnedFd listener(open_socket());
  const AbstractAddress address = abstract_address(card.name, sequence);
  if (listener.get() < 0 || bind(listener.get(), address.get(), address.bytes) != 0 ||
      listen(listener.get(), SOMAXCONN) != 0) {
    return fail(Status::kResource, "no socket for the ranks of this node: %s", errno_text(errno));
  }
  Status status = bootstrap.put(card_key(sequence), launch::bytes_of(card));
  if (status == Status::kOk) status = bootstrap.fence(deadline_ns);
  if (status == Status::kOk) {
    status = serve_members(place, listener.get(), card, fd, deadline_ns);
  }
  if (status != Status::kOk) return status;
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) return fail(Status::kResource, "fcntl(%d, F_DUPFD): %s", fd, errno_text(errno));
  *received = copy;
  return Status::kOk;
}

// ---- the others ----

Status connect_to(int socket, const AbstractAddress& address, Rank leader,
                  uint64_t deadline_ns) noexcept {
  while (connect(socket, address.get(), address.bytes) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) {
      return fail(
          Status::kBroken,
          "rank %u cannot be reached: %s; is it gone, or in a container with a network of its own?",
          leader, errno_text(errno));
    }
    // As many are waiting already as a listener may have.
    const timespec pause{0, kRetryNs};
    nanosleep(&pause, nullptr);
    if (now_ns() > deadline_ns)
      return fail(Status::kNotReady, "rank %u did not take our connection", leader);
  }
  return Status::kOk;
}

// The descriptor of a message, or -1.
int take_fd(msghdr* message) noexcept {
  const cmsghdr* head = CMSG_FIRSTHDR(message);
  const bool one = head != nullptr && head->cmsg_level == SOL_SOCKET &&
                   head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(sizeof(int));
  if (!one) return -1;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(head), sizeof fd);
  return fd;
}

Status receive_fd(int socket, const Handshake& sent, Rank leader, int* received,
                  uint64_t deadline_ns) noexcept {
  if (!launch::wait_readable(socket, deadline_ns)) {
    return fail(Status::kNotReady, "rank %u did not send the shared descriptor", leader);
  }
  Handshake handshake;
  iovec part{&handshake, sizeof handshake};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t bytes = 0;
  do {
    bytes = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (bytes < 0 && errno == EINTR);
  if (bytes <= 0) {
    return fail(Status::kBroken,
                "rank %u ended the connection before it sent the shared descriptor", leader);
  }
  const int fd = take_fd(&message);
  if (fd < 0 && (message.msg_flags & MSG_CTRUNC) != 0) {
    return fail(Status::kResource,
                "no descriptor is free for the memory of rank %u; raise ulimit -n", leader);
  }
  const bool ours = bytes == sizeof handshake && (message.msg_flags & MSG_TRUNC) == 0 &&
                    handshake.magic == kHandshakeMagic && handshake.rank == sent.rank &&
                    handshake.token == sent.token;
  if (fd < 0 || !ours) {
    if (fd >= 0) close(fd);
    return fail(Status::kBroken, "what answers for rank %u is not that rank", leader);
  }
  *received = fd;
  return Status::kOk;
}

Status follow(Bootstrap& bootstrap, uint32_t sequence, int* received,
              uint64_t deadline_ns) noexcept {
  const JobPlace& place = bootstrap.place();
  const Rank leader = place.node_ranks.front();
  Status status = bootstrap.fence(deadline_ns);
  if (status != Status::kOk) return status;
  LeaderCard card;
  size_t bytes = 0;
  status = bootstrap.get(leader, card_key(sequence), std::as_writable_bytes(std::span(&card, 1)),
                         &bytes, deadline_ns);
  if (status != Status::kOk) return status;
  if (bytes != sizeof card)
    return fail(Status::kBroken, "rank %u has put a card of %zu bytes", leader, bytes);
  const OwnedFd socket(open_socket());
  if (socket.get() < 0) return fail(Status::kResource, "socket(): %s", errno_text(errno));
  status = connect_to(socket.get(), abstract_address(card.name, sequence), leader, deadline_ns);
  if (status != Status::kOk) return status;
  if (!same_user(socket.get())) {
    return fail(Status::kBroken, "rank %u runs as another user", leader);
  }
  const Handshake handshake{.rank = place.rank, .token = card.token};
  if (::send(socket.get(), &handshake, sizeof handshake, MSG_NOSIGNAL) != sizeof handshake) {
    return fail(Status::kBroken, "rank %u does not listen: %s", leader, errno_text(errno));
  }
  return receive_fd(socket.get(), handshake, leader, received, deadline_ns);
}

}  // namespace

Status share_fd(Bootstrap& bootstrap, uint32_t sequence, int fd_of_leader, int* received,
                uint64_t deadline_ns) noexcept {
  if (bootstrap.place().node_rank == 0) {
    return lead(bootstrap, sequence, fd_of_leader, received, deadline_ns);
  }
  return follow(bootstrap, sequence, received, deadline_ns);
}

}  // namespace hydrant
