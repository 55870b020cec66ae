// Shared by tests over the guest's device: a verbs rank in this process.
#pragma once

#include "rdma/ibv/ibv_transport.hpp"
#include "tests/unit/rdma/ibv/ibv_world.hpp"

#include <cstring>
#include <memory>
#include <sched.h>

namespace hydrant::testing {

// The longest wait of a test; only failures take as long.
inline constexpr double kLongSeconds = 40;

struct RankProcess {
  // Opens the transport and waits for the other ranks. On failure prints the reason and leaves `transport`
  // null.
  void open(Bootstrap& bootstrap, const IbvTransport::Options& options) {
    if (IbvTransport::open(bootstrap, options, &transport) == Status::kOk &&
        bootstrap.fence(in_seconds(kLongSeconds)) == Status::kOk)
      return;
    std::printf("rank %u cannot start: %s\n", bootstrap.topology().rank, last_error_text());
    transport.reset();
  }
  // Polls until holds() is true; false at the time limit.
  template <typename Holds>
  bool until(Holds holds) {
    const uint64_t deadline = in_seconds(kLongSeconds);
    while (!holds()) {
      if (now_ns() > deadline) return false;
      if (transport->poll(inbox, 16, false) != 0) continue;
      if (sleeps) {
        transport->sleeping().sleep(in_seconds(0.02));
      } else {
        sched_yield();
      }
    }
    return true;
  }
  // Sends `head`, and `payload` in a cell if it is not empty, polling until there is room.
  Status send(Rank to, Lane lane, uint32_t tag, std::string_view head,
              std::string_view payload = {}) {
    Status status = Status::kNotReady;
    const auto cell_bytes = static_cast<uint32_t>(payload.size());
    (void)until([&] {
      Cell cell;
      if (cell_bytes != 0 &&
          (status = transport->messages(to).take_cell(to, lane, cell_bytes, &cell)) != Status::kOk)
        return status != Status::kNotReady;
      Outgoing room;
      status = transport->messages(to).reserve(to, lane, static_cast<uint32_t>(head.size()), &room);
      if (status != Status::kOk) {
        if (cell_bytes != 0) transport->messages(to).drop_cell(to, lane, cell);
        return status != Status::kNotReady;
      }
      std::memcpy(room.head, head.data(), head.size());
      if (cell_bytes != 0) {
        std::memcpy(cell.data, payload.data(), payload.size());
        transport->messages(to).commit_with_cell(room, tag, cell, cell_bytes);
      } else {
        transport->messages(to).commit(room, tag);
      }
      return true;
    });
    return status;
  }

  std::unique_ptr<IbvTransport> transport;
  Inbox inbox;
  bool sleeps = false;  // sleep in the kernel when idle; else poll
};

}  // namespace hydrant::testing
