// Sends and reads exit notifications between the ranks of a node, and opens a pidfd for each of them.
// ExitWatch (exit_watch.cpp) drives it under launchers other than hydrant-run.
#include "rdma/exit/node_exit_channel.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/bootstrap/wire.hpp"
#include "rdma/exit/process_exit.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr char kAddressKey[] = "words";
constexpr uint32_t kMagic = 0x48594e57;

struct ExitChannelAddress {
  uint64_t start_time = 0;
  int32_t pid = 0;
  uint32_t zero = 0;
  RandomName name{};
  char padding[7] = {};
};
static_assert(sizeof(ExitChannelAddress) == 56);

struct Message {
  uint32_t magic = kMagic;
  Rank sender = 0;
  Rank rank = 0;  // the rank that exits: the sender, or a rank of another node
  int32_t code = 0;
  NoticeKind what = NoticeKind::kExit;
};

// Numbers of addresses for claims, in place of a rank.
constexpr uint32_t kDeathClaim = UINT32_MAX;
constexpr uint32_t kExitClaim = UINT32_MAX - 1;
constexpr uint32_t kWaitClaim = UINT32_MAX - 2;

bool claim_name(const RandomName& name, uint32_t number, KeptDescriptor* held) noexcept {
  const AbstractAddress address = abstract_address(name, number);
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  held->keep(fd);
  return fd >= 0 && bind(fd, address.get(), address.bytes) == 0;
}

// False if the pid belongs to another process: the rank has ended, or runs in a container with its own pid
// namespace.
bool is_there(pid_t pid, uint64_t start_time) noexcept {
  return process_start_time(pid) == start_time;
}

}  // namespace

Status NodeExitChannel::bind_socket(KeptDescriptor* held) noexcept {
  const AbstractAddress address = abstract_address(name_, rank_);
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  held->keep(fd);
  const int on = 1;
  if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
      bind(fd, address.get(), address.bytes) != 0) {
    const int error = errno;
    held->close();
    return fail(Status::kResource, "no socket for notices between the ranks of this node: %s",
                errno_text(error));
  }
  return Status::kOk;
}

Status NodeExitChannel::find_peer(Bootstrap& bootstrap, Rank rank, uint64_t deadline_ns) noexcept {
  ExitChannelAddress record;
  size_t bytes = 0;
  const Status status = bootstrap.get(
      rank, kAddressKey, std::as_writable_bytes(std::span(&record, 1)), &bytes, deadline_ns);
  if (status != Status::kOk)
    return add_context(status, "while the process of rank %u was looked up", rank);
  if (bytes != sizeof record)
    return fail(Status::kBroken, "rank %u has put an entry of %zu bytes, not %zu", rank, bytes,
                sizeof record);
  Peer peer{.rank = rank, .pid = record.pid, .start_time = record.start_time, .name = record.name};
  const int fd = open_pidfd(record.pid);
  peer.pidfd.keep(fd);
  if (fd < 0 || !is_there(record.pid, record.start_time)) {
    return fail(Status::kBroken,
                "rank %u says it is process %d, which is not there; has it ended, or does it run "
                "in a container?",
                rank, record.pid);
  }
  peers_.push_back(std::move(peer));
  return Status::kOk;
}

Status NodeExitChannel::open(Bootstrap& bootstrap, uint64_t deadline_ns,
                             std::unique_ptr<NodeExitChannel>* channel) noexcept {
  const JobTopology& topology = bootstrap.topology();
  std::unique_ptr<NodeExitChannel> made(new NodeExitChannel);
  made->rank_ = topology.rank;
  made->name_ = make_random_name();
  Status status = made->bind_socket(&made->socket_);
  if (status != Status::kOk) return status;
  const ExitChannelAddress record{.start_time = process_start_time(getpid()),
                                  .pid = static_cast<int32_t>(getpid()),
                                  .name = made->name_};
  status = bootstrap.put(kAddressKey, launch::bytes_of(record));
  if (status == Status::kOk) status = bootstrap.fence(deadline_ns);
  made->peers_.reserve(topology.node_ranks.size() - 1);
  for (const Rank rank : topology.node_ranks) {
    if (status == Status::kOk && rank != topology.rank) {
      status = made->find_peer(bootstrap, rank, deadline_ns);
    }
  }
  // The second fence: no rank exits before all others have opened its pidfd.
  if (status == Status::kOk) status = bootstrap.fence(deadline_ns);
  if (status == Status::kOk) *channel = std::move(made);
  return status;
}

bool NodeExitChannel::claim(const Peer& peer) noexcept {
  return claim_name(peer.name, kDeathClaim, &claim_);
}

// The name of the node's first rank, for claims that all ranks compete for.
const RandomName& NodeExitChannel::common_name() const noexcept {
  const bool is_first = peers_.empty() || rank_ < peers_.front().rank;
  return is_first ? name_ : peers_.front().name;
}

bool NodeExitChannel::claim_exit() noexcept {
  return claim_name(common_name(), kExitClaim, &exit_claim_);
}

bool NodeExitChannel::claim_wait() noexcept {
  if (wait_claim_.number() >= 0) return false;
  return claim_name(common_name(), kWaitClaim, &wait_claim_);
}

bool NodeExitChannel::read(Rank* rank, int* code) noexcept {
  for (;;) {
    Message message;
    iovec part{&message, sizeof message};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))] = {};
    msghdr head{};
    head.msg_iov = &part;
    head.msg_iovlen = 1;
    head.msg_control = control;
    head.msg_controllen = sizeof control;
    // MSG_TRUNC makes recvmsg() return the full length of the datagram.
    const ssize_t bytes =
        uncancelled::recvmsg(fd(), &head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_TRUNC);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return false;
    ucred sender{};
    const cmsghdr* about = CMSG_FIRSTHDR(&head);
    const bool credentials =
        about != nullptr && about->cmsg_level == SOL_SOCKET && about->cmsg_type == SCM_CREDENTIALS;
    if (credentials) std::memcpy(&sender, CMSG_DATA(about), sizeof sender);
    auto peer = std::find_if(peers_.begin(), peers_.end(),
                             [&](const Peer& one) { return one.rank == message.sender; });
    // The kernel vouches for the sender's pid: no other process can end the job in the name of a rank.
    const bool good = bytes == sizeof message && message.magic == kMagic &&
                      message.what <= NoticeKind::kDeathPublished && credentials &&
                      peer != peers_.end() && sender.pid == peer->pid;
    if (!good) continue;
    if (message.what == NoticeKind::kDeathPublished) {
      peer->published_its_death = true;
      continue;
    }
    *rank = message.rank;
    *code = message.code;
    return true;
  }
}

bool NodeExitChannel::repair() noexcept {
  // All descriptors are checked before any is reopened: a new one may get the number of a closed one.
  KeptDescriptor& current = again_.number() >= 0 ? again_ : socket_;
  const bool is_socket_lost = current.is_lost();
  bool any = is_socket_lost;
  for (Peer& peer : peers_) {
    if (!peer.pidfd.is_lost()) continue;
    any = true;
    peer.pidfd.close();  // does not close another file under the same number
  }
  if (is_socket_lost) {
    lost_notices_ = true;
    // A child that the program has just forked may keep the name bound until it executes another program.
    constexpr int kLoggedFailures = 2;
    if (bind_socket(&again_) != Status::kOk && ++failures_ == kLoggedFailures) {
      log_warning(
          "rank %u does not receive exits of its node: the program has closed its socket, and "
          "another cannot be opened (%s); close only descriptors that the program has opened",
          rank_, last_error_text());
    }
  }
  for (Peer& peer : peers_) {
    if (peer.pidfd.number() < 0 && !peer.is_gone && !peer.is_end_handled) watch_again(peer);
  }
  return any;
}

void NodeExitChannel::watch_again(Peer& peer) noexcept {
  const int fd = open_pidfd(peer.pid);
  peer.is_gone = fd >= 0 ? !is_there(peer.pid, peer.start_time) : errno == ESRCH;
  peer.pidfd.keep(fd);
  if (peer.is_gone) peer.pidfd.close();
}

void NodeExitChannel::publish_exit(Rank rank, int code, NoticeKind what) const noexcept {
  const Message message{.sender = rank_, .rank = rank, .code = code, .what = what};
  const int own = socket_.get();
  // Any socket will do: the receiver checks the sender's pid, not its address.
  const int used = own >= 0 ? own : socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  for (const Peer& peer : peers_) {
    const AbstractAddress address = abstract_address(peer.name, peer.rank);
    uncancelled::sendto(used, &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL, address.get(),
                        address.bytes);
  }
  if (own < 0 && used >= 0) uncancelled::close(used);
}

}  // namespace hydrant
