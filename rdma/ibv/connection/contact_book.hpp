// Looks up the endpoint addresses of the job's ranks in the launcher's store. A look-up may take seconds, so
// callers hold no lock meanwhile: other threads go on answering handshakes.
//
// Invariant: one call of the bootstrap is under way at most.
//
// Threads: any.
#pragma once

#include "firehose/base/status.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/ibv/wire/ibv_wire.hpp"

namespace hydrant::ibv {

class ContactBook {
 public:
  // The key of an endpoint address in the bootstrap.
  static constexpr const char* kEndpointKey = "ibv";

  using Clock = uint64_t (*)() noexcept;
  ContactBook(Bootstrap& bootstrap, Clock clock) noexcept : bootstrap_(bootstrap), clock_(clock) {}

  // Waits until other look-ups have ended. Errors: kBroken: the rank has no address, or one that is invalid,
  // of another version or of another job; kResource: the launcher has not answered within ten seconds; those
  // of Bootstrap::get().
  Status look_up(Rank rank, EndpointAddress* endpoint) noexcept HYDRANT_EXCLUDES(mu_);
  // A look_up() that does not wait for others. Errors: also kNotReady: another thread looks something up, so
  // the caller polls and tries again.
  Status try_look_up(Rank rank, EndpointAddress* endpoint) noexcept HYDRANT_EXCLUDES(mu_);

 private:
  Status ask(Rank rank, EndpointAddress* endpoint) noexcept HYDRANT_REQUIRES(mu_);

  Bootstrap& bootstrap_;
  const Clock clock_;
  Mutex mu_;  // held during a call of the bootstrap
};

}  // namespace hydrant::ibv
