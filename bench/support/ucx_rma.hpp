// UCX's puts and gets between two ranks of a node, as a peer for rma_bench: memory that UCX has
// allocated, which its shared-memory transport maps, and memory of the heap, which it copies by the
// kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hydrant::bench {

class UcxRma {
 public:
  // `heap` of `bytes` bytes, and as much allocated by UCX, become targets.
  UcxRma(std::byte* heap, size_t bytes);
  ~UcxRma();
  UcxRma(const UcxRma&) = delete;
  UcxRma& operator=(const UcxRma&) = delete;

  // False: UCX or one of its transports does not work here; why() says it.
  bool works() const { return works_; }
  const std::string& why() const { return why_; }

  // Opaque: to be given to the other rank, and taken from it.
  std::vector<std::byte> card() const;
  bool connect(const std::vector<std::byte>& peer_card);

  // Starts `count` operations of `bytes` bytes on memory that lies one after the other, and waits until they
  // are complete at the peer. heap: the peer's heap, else its allocated memory.
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
