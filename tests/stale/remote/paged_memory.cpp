// Pages of a rank, their replacement, and checked writes through registrations.
#include "tests/stale/remote/paged_memory.hpp"

#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::stale {

PagedMemory::PagedMemory(size_t pages)
    : pages_(pages),
      registrations_(new Registration[kRegistrations]),
      oldest_(new std::atomic<uint64_t>[pages]()) {
  for (uint32_t i = kRegistrations; i > 0; --i) free_.push_back(i - 1);
  table.size = sizeof table;
  table.user = this;
  table.name = "paged";
  table.key_bytes = sizeof(Key);
  table.max_region_bytes = kMaxPages * kPageBytes;
  table.pin = [](void* user, uintptr_t addr, size_t len, uint32_t, void* key) {
    return static_cast<PagedMemory*>(user)->pin_range(addr, len, key);
  };
  table.unpin = [](void* user, uintptr_t addr, size_t len, const void* key) {
    return static_cast<PagedMemory*>(user)->unpin_range(addr, len, key);
  };
}

PagedMemory::~PagedMemory() = default;

std::string PagedMemory::problem() const {
  const std::lock_guard lock(mu_);
  return problem_;
}

int PagedMemory::pin_range(uintptr_t addr, size_t len, void* key) {
  // Streams request the following pages, which may not exist.
  if (addr < base_ || addr + len > base_ + pages_ * kPageBytes) return HYDRANT_ERR_REFUSED;
  // Numbered before pages are pinned: a pin that began before a replacement is older than it.
  const uint64_t serial = next_serial_.fetch_add(1);
  uint32_t index = 0;
  {
    const std::lock_guard lock(mu_);
    if (free_.empty()) return GASNET_ERR_NOT_READY;
    index = free_.back();
    free_.pop_back();
  }
  Registration& registration = registrations_[index];
  registration.page = (addr - base_) / kPageBytes;
  registration.pages = len / kPageBytes;
  const int status = pin(&registration);
  if (status != GASNET_OK) {
    const std::lock_guard lock(mu_);
    free_.push_back(index);
    return status;
  }
  registration.serial.store(serial);
  ++live_;
  const Key written{index, serial};
  std::memcpy(key, &written, sizeof written);
  return GASNET_OK;
}

int PagedMemory::unpin_range(uintptr_t addr, size_t len, const void* key) {
  Key read{};
  std::memcpy(&read, key, sizeof read);
  Registration& registration = registrations_[read.index];
  if (registration.serial.exchange(0) != read.serial ||
      registration.page != (addr - base_) / kPageBytes || registration.pages != len / kPageBytes) {
    const std::lock_guard lock(mu_);
    problem_ = "a registration was undone twice, or with a wrong key";
    return HYDRANT_UNPIN_BROKEN;
  }
  unpin(&registration);
  --live_;
  const std::lock_guard lock(mu_);
  free_.push_back(static_cast<uint32_t>(read.index));
  return HYDRANT_UNPIN_DONE;
}

// A registration that begins during the replacement may have the new pages: its writes show which, not its
// number.
uint64_t PagedMemory::replace(size_t page, size_t pages) {
  const uint64_t serial = next_serial_.load();
  replace_pages(page, pages);
  return serial;
}

void PagedMemory::condemn(size_t page, size_t pages, uint64_t serial) {
  for (size_t i = page; i < page + pages; ++i) oldest_[i].store(serial);
}

std::string PagedMemory::write(const void* key, size_t page, size_t cell, uint32_t value,
                               bool* visible) {
  Key read{};
  std::memcpy(&read, key, sizeof read);
  if (read.index >= kRegistrations) return "not a key of this memory";
  Registration& registration = registrations_[read.index];
  const auto is_live = [&] { return registration.serial.load() == read.serial; };
  if (!is_live()) return "the registration was undone while it was held";
  if (read.serial < oldest_[page].load())
    return "memory that was reported as out of reach was reached";
  if (page < registration.page || page >= registration.page + registration.pages)
    return "the registration does not cover the page";
  if (!store(registration, page, cell, value)) return "the write through the registration failed";
  *visible = load(page, cell) == value;
  if (!is_live()) return "the registration was undone during a write";
  if (read.serial < oldest_[page].load())
    return "the memory was reported as out of reach during a write";
  return "";
}

namespace {

class ObjectMemory final : public PagedMemory {
 public:
  explicit ObjectMemory(size_t pages) : PagedMemory(pages), now_(new std::atomic<Object*>[pages]) {
    base_ = uintptr_t{1} << 32;
    for (size_t i = 0; i < pages; ++i) now_[i].store(add());
  }

 private:
  struct Object {
    std::array<std::atomic<uint32_t>, kCells> cells{};
  };

  // Objects are never freed, so that a write to a replaced one is detected and does not crash.
  Object* add() {
    const std::lock_guard lock(objects_mu_);
    objects_.push_back(std::make_unique<Object>());
    return objects_.back().get();
  }
  int pin(Registration* registration) override {
    for (size_t i = 0; i < registration->pages; ++i)
      registration->objects[i].store(now_[registration->page + i].load());
    return GASNET_OK;
  }
  void unpin(Registration*) override {}
  void replace_pages(size_t page, size_t pages) override {
    for (size_t i = page; i < page + pages; ++i) now_[i].store(add());
  }
  bool store(Registration& registration, size_t page, size_t cell, uint32_t value) override {
    static_cast<Object*>(registration.objects[page - registration.page].load())
        ->cells[cell]
        .store(value);
    return true;
  }
  uint32_t load(size_t page, size_t cell) override { return now_[page].load()->cells[cell].load(); }

  std::unique_ptr<std::atomic<Object*>[]> now_;
  std::mutex objects_mu_;
  std::vector<std::unique_ptr<Object>> objects_;
};

class RingMemory final : public PagedMemory {
 public:
  RingMemory(size_t pages, std::unique_ptr<UringRing> ring, int fd, void* memory)
      : PagedMemory(pages), ring_(std::move(ring)), fd_(fd) {
    base_ = reinterpret_cast<uintptr_t>(memory);
  }
  ~RingMemory() override {
    ring_.reset();
    munmap(reinterpret_cast<void*>(base_), pages() * kPageBytes);
    close(fd_);
  }

 private:
  static constexpr uint64_t kLongNs = 30'000'000'000;

  static MemoryRange range_of(const PagedMemory& memory, const Registration& registration) {
    return {memory.addr(registration.page), registration.pages * kPageBytes};
  }
  int pin(Registration* registration) override {
    const MemoryRange range = range_of(*this, *registration);
    if (!ring_->claim(range.len, false)) return GASNET_ERR_NOT_READY;
    const int error = ring_->register_run(range, 0, &registration->run);
    if (error == 0) return GASNET_OK;
    return error == -EFAULT ? HYDRANT_ERR_REFUSED : GASNET_ERR_NOT_READY;
  }
  void unpin(Registration* registration) override {
    const MemoryRange range = range_of(*this, *registration);
    if (!ring_->begin_unregister(range, registration->run)) return;
    (void)ring_->finish_unregister(registration->run.first, UringSize::of(range.len));
  }
  // Replaces in one call, so that no processor access finds a hole. A raw system call, because the thread
  // sanitizer would treat it as a write that races with reads.
  void replace_pages(size_t page, size_t pages) override {
    void* at = reinterpret_cast<void*>(addr(page));
    (void)syscall(SYS_mmap, at, pages * kPageBytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_POPULATE, -1, 0L);
  }
  bool store(Registration& registration, size_t page, size_t cell, uint32_t value) override {
    const auto offset = static_cast<off_t>(cell * sizeof value);
    if (pwrite(fd_, &value, sizeof value, offset) != sizeof value) return false;
    return ring_
               ->move(registration.run, {addr(page) + cell * sizeof value, sizeof value}, fd_,
                      static_cast<uint64_t>(offset), false, kLongNs)
               .cause == UringMoveCause::kNone;
  }
  uint32_t load(size_t page, size_t cell) override {
    const auto* at = reinterpret_cast<const uint32_t*>(addr(page)) + cell;
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
  }

  std::unique_ptr<UringRing> ring_;
  const int fd_;
};

}  // namespace

std::unique_ptr<PagedMemory> make_object_memory(size_t pages) {
  return std::make_unique<ObjectMemory>(pages);
}

std::unique_ptr<PagedMemory> make_ring_memory(size_t pages, std::string* why) {
  UringFailure failure;
  std::unique_ptr<UringRing> ring = UringRing::open(kRegistrations, false, &failure);
  if (ring == nullptr) {
    *why = std::string("cannot create a ring: ") + std::strerror(-failure.error);
    return nullptr;
  }
  const int fd = memfd_create("cells", MFD_CLOEXEC);
  void* memory = mmap(nullptr, pages * kPageBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (fd < 0 || memory == MAP_FAILED || ftruncate(fd, kPageBytes) != 0) {
    *why = "cannot map memory";
    return nullptr;
  }
  return std::make_unique<RingMemory>(pages, std::move(ring), fd, memory);
}

}  // namespace hydrant::stale
