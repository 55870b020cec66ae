// The settings of a domain, constant for its life.
#pragma once

#include <hydrant/pin_cache.h>

#include "firehose/base/memory_range.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace hydrant {

class UringRegistrar;

struct DomainConfig {
  char name[32] = "";
  uint32_t mode = HYDRANT_MODE_REGION;
  uint32_t watch = HYDRANT_WATCH_CLIENT;
  Access eager = Access::kLocalRead;
  uint64_t budget_bytes = 0;
  // The limit from which budget_bytes follows, if it is this one: RLIMIT_MEMLOCK, or the most that the
  // registrar can charge for reasons of its own.
  std::optional<uint64_t> memlock_bytes = std::nullopt;
  std::optional<uint64_t> registrar_bytes = std::nullopt;
  uint32_t max_regions = 0;
  size_t max_region_bytes = 0;
  size_t granule_bytes = 4096;  // page mode: the bucket
  size_t merge_bytes = 0;
  size_t crowded_merge_bytes =
      0;                    // the limit without room, while the working set fits into the budget
  size_t stream_bytes = 0;  // longest registration that follows a stream; 0: requests alone
  size_t thread_table_bytes = 0;
  uint64_t wait_warn_ns = 0;
  UringRegistrar* uring = nullptr;    // the registrar, if it is this one
  bool is_remote = false;             // the memory belongs to another process: peer_cache.hpp
  bool unpin_before_release = false;  // as the registrar's trait
  bool wants_unmap_reports = false;   // the same
};

}  // namespace hydrant
