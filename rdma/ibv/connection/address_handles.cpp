// Makes and destroys address handles. Tour "first contact": the handle is made with the peer, and destroyed
// after the last datagram of its handshake.
#include "rdma/ibv/connection/address_handles.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace hydrant::ibv {

namespace {

// Adapters differ in the error by which they say that they have no more handles.
bool is_shortage(int error) noexcept {
  return error == ENOMEM || error == ENOSPC || error == EAGAIN || error == EBUSY ||
         error == EOVERFLOW;
}

bool is_same(const PortAddress& one, const PortAddress& other) noexcept {
  return one.lid == other.lid && one.needs_grh == other.needs_grh &&
         std::memcmp(&one.gid, &other.gid, sizeof one.gid) == 0;
}

}  // namespace

void AddressHandles::close() noexcept {
  for (Destination*& first : lists_) {
    while (Destination* const last = first) {
      first = last->next;
      delete last;
    }
  }
}

Destination*& AddressHandles::list_of(const PortAddress& port) noexcept {
  uint64_t halves[2];
  static_assert(sizeof halves == sizeof port.gid);
  std::memcpy(halves, &port.gid, sizeof halves);
  // The highest bits of the product depend on all bits of the address.
  const uint64_t mixed = (halves[0] + halves[1] + port.lid) * 0x9e37'79b9'7f4a'7c15;
  return lists_[mixed >> 56];
}

Destination* AddressHandles::add_user(const PortAddress& port) noexcept {
  Destination*& first = list_of(port);
  for (Destination* one = first; one != nullptr; one = one->next) {
    if (!is_same(one->port, port)) continue;
    ++one->users;
    return one;
  }
  auto* const made = new (std::nothrow) Destination;
  if (made == nullptr) {
    (void)fail(Status::kResource, "no memory for an address");
    return nullptr;
  }
  made->port = port;
  made->users = 1;
  made->next = first;
  first = made;
  return made;
}

void AddressHandles::remove_user(Destination& destination) noexcept {
  --destination.users;
  remove_if_unused(destination);
}

Status AddressHandles::begin_send(Destination& destination, const char* peer_name) noexcept {
  const Status status = make(destination, peer_name);
  if (status == Status::kOk) ++destination.sends;
  return status;
}

void AddressHandles::end_send(Destination& destination) noexcept {
  --destination.sends;
  remove_if_unused(destination);
}

void AddressHandles::remove_if_unused(Destination& destination) noexcept {
  if (destination.users != 0 || destination.sends != 0) return;
  destroy_handle(destination);
  if (destination.silence != 0) return;
  Destination** link = &list_of(destination.port);
  while (*link != &destination) link = &(*link)->next;
  *link = destination.next;
  delete &destination;
}

Status AddressHandles::make(Destination& destination, const char* peer_name) noexcept {
  if (destination.handle != nullptr) return Status::kOk;
  int error = destination.silence;
  if (!is_silent(destination)) {
    const uint64_t since_ns = options_.clock();
    error = create(destination);
    if (is_shortage(error) && give_up_one()) error = create(destination);
    note_asked(destination, !is_shortage(error) && is_silence(port_, error) ? error : 0, since_ns);
    if (error == 0) return Status::kOk;
  }
  if (error == 0)
    return fail(Status::kNotReady, "%s addresses %s later: another node does not answer ARP",
                port_.name, peer_name);
  if (destination.silence != 0)
    return fail(Status::kNotReady, "%s cannot address %s: %s (%s)", port_.name, peer_name,
                errno_text(error), silence_text(error));
  return is_shortage(error) ? fail(Status::kNotReady, "%s has no address handle for %s now: %s",
                                   port_.name, peer_name, errno_text(error))
                            : fail(Status::kResource, "%s cannot address %s: %s (no route to it?)",
                                   port_.name, peer_name, errno_text(error));
}

void AddressHandles::note_asked(Destination& destination, int silence, uint64_t since_ns) noexcept {
  destination.silence = silence;
  if (silence == 0) return;
  has_waited_ = true;
  const uint64_t now = options_.clock();
  last_ask_ns_ = std::max(now + options_.refused_ns, last_ask_ns_ + 2 * (now - since_ns));
  destination.silent_until_ns = last_ask_ns_;
}

// Returns 0, or the error.
int AddressHandles::create(Destination& destination) noexcept {
  (void)port_.descriptors.keep_ours(port_.device.context);
  ibv_ah_attr attributes = address_of(port_, destination.port);
  errno = 0;
  destination.handle.reset(uncancelled::call(ibv_create_ah, port_.device.pd, &attributes));
  if (destination.handle != nullptr) return 0;
  return errno != 0 ? errno : EIO;
}

void AddressHandles::destroy_handle(Destination& destination) noexcept {
  if (destination.handle == nullptr) return;
  (void)port_.descriptors.keep_ours(port_.device.context);
  destination.handle.reset();
}

// Destroys a handle that no send uses. False: there is none.
bool AddressHandles::give_up_one() noexcept {
  for (Destination* const first : lists_) {
    for (Destination* one = first; one != nullptr; one = one->next) {
      if (one->handle == nullptr || one->sends != 0) continue;
      destroy_handle(*one);
      return true;
    }
  }
  return false;
}

}  // namespace hydrant::ibv
