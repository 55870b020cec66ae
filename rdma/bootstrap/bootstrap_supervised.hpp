// Wire-up with our own supervisor: the rank's side of rdma/bootstrap/wire.hpp.
#pragma once

#include "firehose/base/kept_descriptor.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/bootstrap/wire.hpp"

#include <memory>
#include <string>

namespace hydrant {

// Distributes the ranks evenly over `nodes` nodes, neighbours together. More than one node on one machine
// emulates a job of several nodes.
JobTopology make_topology(Rank rank, Rank size, uint32_t nodes = 1);

class SupervisedBootstrap final : public Bootstrap {
 public:
  // `calls` and `events` are the rank's ends of its sockets; the object takes ownership. `name` is a literal.
  // `topology` is the layout that this rank reports. Sends kHello. Errors: kBadArg: another process is this
  // rank; kBroken: there is no supervisor, or the job ends already.
  static Status open(const char* name, const JobTopology& topology, int calls, int events,
                     uint64_t deadline_ns, std::unique_ptr<Bootstrap>* bootstrap) noexcept;
  ~SupervisedBootstrap() override = default;

  const char* name() const noexcept override { return name_; }
  const JobTopology& topology() const noexcept override { return topology_; }
  Status put(std::string_view key, std::span<const std::byte> entry) noexcept override;
  Status fence(uint64_t deadline_ns) noexcept override {
    return fence_and_poll(deadline_ns, nullptr);
  }
  Status fence_and_poll(uint64_t deadline_ns, PollFn poll) noexcept override;
  Status get(Rank rank, std::string_view key, std::span<std::byte> entry, size_t* bytes,
             uint64_t deadline_ns) noexcept override;
  int event_fd() const noexcept override { return events_.get(); }
  Event read_event() noexcept override;
  int supervisor() const noexcept override { return supervisor_; }
  void leave(int code, ExitReason how, uint64_t deadline_ns) noexcept override;

 private:
  SupervisedBootstrap(const char* name, const JobTopology& topology, int calls, int events);
  // Sends a request and waits for the reply, with polls if `poll` is not null. If `bytes` is not null, the
  // bytes that follow a kOk are stored in `entry_out`.
  Status call(launch::Request& request, std::span<const std::byte> entry,
              std::span<std::byte> entry_out, size_t* bytes, PollFn poll = nullptr) noexcept;
  Status send(const launch::Request& request, std::span<const std::byte> entry,
              uint64_t deadline_ns) noexcept;
  Status lost() const noexcept;
  Status gone() const noexcept;
  Status silent() const noexcept;

  const char* name_;
  JobTopology topology_;
  KeptDescriptor calls_;
  KeptDescriptor events_;
  int supervisor_ = 0;
  uint32_t next_id_ = 1;
};

}  // namespace hydrant
