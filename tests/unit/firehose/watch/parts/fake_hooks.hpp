// The hooks' records as a test writes them: complete hooks of which no thread is inside a call.
#pragma once

#include "firehose/watch/hooks_abi.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant::testing {

class FakeHooks {
 public:
  static constexpr uint32_t kRecords = 16;

  FakeHooks() {
    hooks.size = sizeof hooks;
    hooks.version = HYDRANT_HOOKS_VERSION;
    hooks.families = HYDRANT_HOOKS_ALL;
    hooks.threads = records.data();
    hooks.thread_count = kRecords;
    hooks.heap_blocks = blocks_.get();
    hooks.libc_blocks = blocks_.get();
    hooks.main_heap_low = &no_heap_;
    hooks.main_heap_high = &no_heap_;
  }

  hydrant_hooks_t hooks{};
  alignas(64) std::array<hydrant_hooks_thread_t, kRecords> records{};

 private:
  static constexpr size_t kBlockWords = size_t{1} << (47 - HYDRANT_HOOKS_HEAP_SHIFT - 6);

  std::unique_ptr<uint64_t[]> blocks_ = std::make_unique<uint64_t[]>(kBlockWords);
  uintptr_t no_heap_ = 0;
};

}  // namespace hydrant::testing
