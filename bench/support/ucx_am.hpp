// UCX's Active Messages between two ranks over shared memory, as a peer for am_bench.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hydrant::bench {

class UcxAm {
 public:
  UcxAm();
  ~UcxAm();
  UcxAm(const UcxAm&) = delete;
  UcxAm& operator=(const UcxAm&) = delete;

  // False if UCX or its shared-memory transport does not work here; why() has the reason.
  bool works() const { return worker_ != nullptr; }
  const char* why() const { return why_; }

  // The address for the peer; connect() takes the peer's.
  const std::vector<std::byte>& address() const { return address_; }
  bool connect(const std::vector<std::byte>& peer_address);

  // Sends a message with `bytes` of payload. `answer`: the peer replies with a message of the same length.
  void send(const void* payload, size_t bytes, bool answer);
  void progress();
  // Total messages received, replies included.
  uint64_t received() const { return received_; }

 private:
  static int on_message(void* self, const void* header, size_t header_bytes, void* data,
                        size_t bytes, const void* parameters);
  void* context_ = nullptr;
  void* worker_ = nullptr;
  void* endpoint_ = nullptr;
  const char* why_ = "";
  std::vector<std::byte> address_;
  std::vector<std::byte> answer_;
  uint64_t received_ = 0;
};

}  // namespace hydrant::bench
