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

  // False: UCX or its shared-memory transport does not work here; why() says it.
  bool works() const { return worker_ != nullptr; }
  const char* why() const { return why_; }

  // To be given to the other rank, and taken from it.
  const std::vector<std::byte>& address() const { return address_; }
  bool connect(const std::vector<std::byte>& peer_address);

  // Sends a message with `bytes` of payload. `answer`: the other side replies with a message as long.
  void send(const void* payload, size_t bytes, bool answer);
  void progress();
  // Messages that came, answers and others.
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
