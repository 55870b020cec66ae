// This library's cache as the subject of a hunt.
#pragma once

#include <hydrant/pin_cache.h>

#include "tests/stale/hunt/cache.hpp"

#include <memory>
#include <string>

namespace hydrant::stale {

struct HydrantCacheOptions {
  uint32_t watch = HYDRANT_WATCH_AUTO;
  uint32_t mode = HYDRANT_MODE_REGION;
  uint64_t budget_bytes = 0;  // 0: the library's default
  size_t merge_bytes = 0;     // 0: the library's default
  bool busy_mutex = false;    // invalidations find the cache's mutex held; needs has_mutants()
  // "uring", or "ibv" in a build with verbs: both can move data through registrations.
  std::string registrar = "uring";
};

// Null with a text if the registrar is unavailable.
std::unique_ptr<Cache> make_hydrant_cache(const HydrantCacheOptions& options, std::string* error);

// "auto", "client", "none", "default"; parse_watch() answers false for other texts.
const char* watch_name(uint32_t watch);
bool parse_watch(const std::string& text, uint32_t* watch);

}  // namespace hydrant::stale
