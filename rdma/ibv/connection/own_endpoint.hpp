// This process's endpoint address: what peers need to send it a handshake. Constant after open().
#pragma once

#include "rdma/ibv/device/ibv_port.hpp"
#include "rdma/ibv/queue/rails.hpp"
#include "rdma/ibv/settings/ibv_options.hpp"
#include "rdma/ibv/wire/ibv_wire.hpp"

#include <cstdint>

namespace hydrant::ibv {

class OwnEndpoint {
 public:
  OwnEndpoint(const Options& options, const Port& port, const Rails& rails) noexcept
      : options_(options), port_(port), rails_(rails) {}
  // Draws the nonce.
  void open(Rank self, Rank ranks) noexcept;
  void set_datagram_queue(uint32_t number) noexcept { datagram_queue_ = number; }

  Rank self() const noexcept { return self_; }
  Rank ranks() const noexcept { return ranks_; }
  // Differs between processes, and between runs.
  uint64_t nonce() const noexcept { return nonce_; }
  ConnectionParameters connection_parameters() const noexcept;
  // The address with the first `rails` rails only.
  EndpointAddress address(uint32_t rails) const noexcept;
  EndpointAddress address() const noexcept { return address(rails_.count()); }

 private:
  const Options& options_;
  const Port& port_;
  const Rails& rails_;
  Rank self_ = 0;
  Rank ranks_ = 0;
  uint64_t nonce_ = 0;
  uint32_t datagram_queue_ = 0;
};

// Looks whether an open port still has the address with which the job began: LID, GID and P_Key. A port that
// is down is not judged, because it may come back with that address. The GID counts only if packets to
// `there`, a peer's port, have a global header; null: a port that demands none. On InfiniBand the GID changes
// with the subnet's prefix, and most packets go by LID. *gid_index: where it is looked for first, and where
// it is: a GID that was removed and added again may have another place in the table. keep_ours() of the
// port's descriptors precedes it. Errors: kResource, with what is lost; the port may get it again. Cost: some
// system calls.
[[gnu::cold]] Status confirm_address(const Port& port, const PortAddress* there,
                                     uint8_t* gid_index) noexcept;

}  // namespace hydrant::ibv
