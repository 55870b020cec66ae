// Memory files and keys for the tests of the shared-memory registrar.
#pragma once

#include "rdma/exit/process_exit.hpp"
#include "rdma/shm/attachment_cache.hpp"
#include "rdma/shm/memory/shm_key.hpp"
#include "rdma/shm/shm_registrar.hpp"
#include "tests/support/sizes.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace hydrant::testing {

// A memory file of this process, and the blob of all of it.
class MemoryFile {
 public:
  explicit MemoryFile(size_t bytes, int seals = F_SEAL_SHRINK) : bytes_(bytes) {
    fd_ = memfd_create("hydrant test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(fcntl(fd_, F_ADD_SEALS, seals), 0);
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int fd() const { return fd_; }
  shm::ShmBlob blob() const { return blob(0, bytes_); }
  shm::ShmBlob blob(uint64_t offset, size_t len) const { return blob_of(fd_, offset, len); }
  static shm::ShmBlob blob_of(int fd, uint64_t offset, size_t len) {
    struct stat file {};
    EXPECT_EQ(fstat(fd, &file), 0);
    shm::ShmBlob blob;
    blob.process = static_cast<uint32_t>(getpid());
    blob.start_time = process_start_time(getpid());
    blob.descriptor = static_cast<uint32_t>(fd);
    blob.device = file.st_dev;
    blob.inode = file.st_ino;
    blob.offset = offset;
    blob.range = {0x100000000000 + offset, len};
    blob.access = Access::kRemoteRead | Access::kRemoteWrite;
    return blob;
  }

 private:
  size_t bytes_;
  int fd_ = -1;
};

// The number and the rights of the file's mappings in this process.
struct Mapped {
  int times = 0;
  std::string rights;  // of the last, as "rw-s"
};
inline Mapped mapped_here(uint64_t inode) {
  Mapped found;
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  char line[512];
  while (maps != nullptr && std::fgets(line, sizeof line, maps) != nullptr) {
    char rights[8] = "";
    unsigned long of_line = 0;
    if (std::sscanf(line, "%*s %7s %*s %*s %lu", rights, &of_line) != 2 || of_line != inode)
      continue;
    ++found.times;
    found.rights = rights;
  }
  if (maps != nullptr) std::fclose(maps);
  return found;
}

inline std::unique_ptr<shm::ShmRegistrar> make_shm_registrar() {
  std::unique_ptr<shm::ShmRegistrar> made;
  EXPECT_EQ(shm::ShmRegistrar::create(&made), Status::kOk) << last_error_text();
  return made;
}

// An imported key; dropped by the destructor.
class Import {
 public:
  Import(Registrar& registrar, const std::string& blob) : registrar_(registrar) {
    status_ =
        registrar.import_key(reinterpret_cast<const std::byte*>(blob.data()), blob.size(), bytes_);
  }
  Import(Registrar& registrar, const shm::ShmBlob& blob) : registrar_(registrar) {
    std::byte coded[shm::kShmBlobBytes];
    shm::encode_shm_blob(blob, coded);
    status_ = registrar.import_key(coded, sizeof coded, bytes_);
  }
  ~Import() { drop(); }
  Import(const Import&) = delete;
  Import& operator=(const Import&) = delete;

  Status status() const { return status_; }
  shm::ShmKey key() const { return shm::ShmKey::load(bytes_); }
  // Not inline: the test crashes on null, of which the compiler would warn.
  [[gnu::noinline]] char* at(uintptr_t addr, size_t len = 1) const {
    return reinterpret_cast<char*>(key().find(addr, len));
  }
  void drop() {
    if (status_ == Status::kOk) registrar_.drop_import(bytes_);
    status_ = Status::kNotInit;
  }
  const std::byte* bytes() const { return bytes_; }

 private:
  Registrar& registrar_;
  std::byte bytes_[sizeof(shm::ShmKey)] = {};
  Status status_ = Status::kOk;
};

// Pins and exports; "" with a failed expectation.
inline std::string export_of(Registrar& registrar, const void* p, size_t len, Access access) {
  const MemoryRange range{reinterpret_cast<uintptr_t>(p), len};
  std::byte key[sizeof(shm::ShmKey)];
  std::string blob(shm::kShmBlobBytes, '\0');
  size_t size = blob.size();
  const Status status = registrar.pin(range, access, key);
  EXPECT_EQ(status, Status::kOk) << last_error_text();
  if (status != Status::kOk) return "";
  EXPECT_EQ(registrar.export_key(range, key, reinterpret_cast<std::byte*>(blob.data()), &size),
            Status::kOk);
  EXPECT_EQ(registrar.unpin(range, key), UnpinResult::kDone);
  return blob;
}

}  // namespace hydrant::testing
