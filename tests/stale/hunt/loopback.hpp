// Moves bytes between registered memory and files by RDMA: a queue pair that is connected to itself, and a
// buffer between the adapter and the file. A stale registration shows as bytes of other pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

struct ibv_cq;
struct ibv_mr;
struct ibv_pd;
struct ibv_qp;

namespace hydrant::stale {

class Loopback {
 public:
  // In the protection domain of the registrations that will be moved. Null with a text.
  static std::unique_ptr<Loopback> open(ibv_pd* pd, std::string* error);
  ~Loopback();
  Loopback(const Loopback&) = delete;
  Loopback& operator=(const Loopback&) = delete;

  // Moves [addr, addr+len), which `lkey` covers, to or from the file's position. False with a text.
  // Threads: any; one at a time moves.
  bool move(uintptr_t addr, size_t len, uint32_t lkey, int file, bool to_file, std::string* error);

 private:
  static constexpr size_t kBufferBytes = 256 * 1024;

  Loopback() = default;
  bool connect(std::string* error);
  bool transfer(uintptr_t addr, size_t len, uint32_t lkey, bool to_buffer, std::string* error);

  std::mutex mutex_;
  ibv_cq* queue_ = nullptr;
  ibv_qp* pair_ = nullptr;
  ibv_mr* registration_ = nullptr;
  std::unique_ptr<char[]> buffer_;
};

}  // namespace hydrant::stale
