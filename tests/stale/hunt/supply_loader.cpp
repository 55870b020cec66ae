// A supply of libraries that are loaded and unloaded. Each thread has its own copy in a memory file, because
// the loader maps a file only once for all threads.
#include "tests/stale/hunt/worker.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

namespace hydrant::stale {
namespace {

class LoaderSupply final : public Supply {
 public:
  explicit LoaderSupply(uint32_t threads) {
    for (uint32_t i = 0; i < threads; ++i) add_copy();
  }
  ~LoaderSupply() override {
    for (const Copy& copy : copies_) close(copy.file);
  }

  std::string unusable() const override {
    return copies_.empty() ? std::string("cannot copy ") + HYDRANT_HUNT_GUEST : "";
  }

  bool get(Worker& worker, Block* block) override {
    Copy& copy = copies_[worker.index() % copies_.size()];
    {
      const std::lock_guard lock(mutex_);
      if (copy.loaded) return false;
      copy.loaded = true;
    }
    void* library = dlopen(copy.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* memory = library != nullptr ? dlsym(library, "hunt_guest_memory") : nullptr;
    const void* bytes = library != nullptr ? dlsym(library, "hunt_guest_bytes") : nullptr;
    if (memory == nullptr || bytes == nullptr) {
      if (library != nullptr) dlclose(library);
      return unload(copy), false;
    }
    *block = {};
    block->supply = this;
    block->source = Source::kLoader;
    block->origin = library;
    block->file = static_cast<int>(&copy - copies_.data());
    block->range = {reinterpret_cast<uintptr_t>(memory), *static_cast<const size_t*>(bytes)};
    block->life = worker.begin(Source::kLoader, block->range);
    return true;
  }

  void free_block(Worker& worker, Block& block) override {
    worker.leaving(block.range, Fate::kPagesGo);
    dlclose(block.origin);
    unload(copies_[static_cast<size_t>(block.file)]);
  }

 private:
  struct Copy {
    int file;
    std::string path;
    bool loaded;
  };

  void add_copy() {
    const int from = open(HYDRANT_HUNT_GUEST, O_RDONLY | O_CLOEXEC);
    if (from < 0) return;
    const int to = memfd_create("guest", MFD_CLOEXEC);
    struct stat about {};
    const bool copied =
        to >= 0 && fstat(from, &about) == 0 &&
        sendfile(to, from, nullptr, static_cast<size_t>(about.st_size)) == about.st_size;
    close(from);
    if (copied) {
      copies_.push_back({to, "/proc/self/fd/" + std::to_string(to), false});
    } else if (to >= 0) {
      close(to);
    }
  }
  void unload(Copy& copy) {
    const std::lock_guard lock(mutex_);
    copy.loaded = false;
  }

  std::mutex mutex_;
  std::vector<Copy> copies_;  // `loaded` under mutex_
};

}  // namespace

std::unique_ptr<Supply> make_loader_supply(SourceSet sources, uint32_t threads) {
  if (!sources.has(Source::kLoader)) return nullptr;
  return std::make_unique<LoaderSupply>(threads);
}

}  // namespace hydrant::stale
