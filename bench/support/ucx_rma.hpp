// UCX's puts and gets between two ranks of a node, as a peer for rma_bench: to memory that UCX has allocated,
// which its shared-memory transport maps, and to heap memory, which it copies through the kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hydrant::bench {

class UcxRma {
 public:
  // Makes `bytes` bytes at `heap`, and as many allocated by UCX, targets of the peer.
  UcxRma(std::byte* heap, size_t bytes);
  ~UcxRma();
  UcxRma(const UcxRma&) = delete;
  UcxRma& operator=(const UcxRma&) = delete;

  // False if UCX or one of its transports does not work here; why() has the reason.
  bool works() const { return works_; }
  const std::string& why() const { return why_; }

  // Opaque data for the peer; connect() takes the peer's.
  std::vector<std::byte> blob() const;
  bool connect(const std::vector<std::byte>& peer_blob);

  // Runs `count` operations of `bytes` bytes on contiguous memory and waits until they are complete at the
  // peer. heap: the target is the peer's heap, else its allocated memory.
  bool run(bool heap, bool is_put, std::byte* local, size_t bytes, size_t count);
  void progress();

 private:
  struct Target {
    void* handle = nullptr;
    std::byte* address = nullptr;
    std::vector<std::byte> key;
    void* peer_key = nullptr;
    uint64_t peer_address = 0;
  };
  bool open();
  bool map(Target& target, std::byte* address, size_t bytes);
  bool finish(void* request);

  bool works_ = false;
  std::string why_;
  void* context_ = nullptr;
  void* worker_ = nullptr;
  void* endpoint_ = nullptr;
  std::vector<std::byte> address_;
  Target targets_[2];  // allocated, heap
};

}  // namespace hydrant::bench
