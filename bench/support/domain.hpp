// A domain whose registrar does nothing, to measure the cache alone.
#pragma once

#include <hydrant/pin_cache.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace hydrant::bench {

inline hydrant_registrar_t noop_registrar() {
  hydrant_registrar_t registrar{};
  registrar.size = sizeof registrar;
  registrar.name = "nothing";
  registrar.key_bytes = 8;
  registrar.pin = [](void*, uintptr_t addr, size_t, uint32_t, void* key) {
    *static_cast<uint64_t*>(key) = addr;
    return GASNET_OK;
  };
  registrar.unpin = [](void*, uintptr_t, size_t, const void*) { return HYDRANT_UNPIN_DONE; };
  return registrar;
}

// Owns a domain; exits with the cache's error text if creation fails.
class Domain {
 public:
  explicit Domain(const hydrant_domain_options_t& options) {
    if (hydrant_domain_create(&options, &domain_) == GASNET_OK) return;
    std::fprintf(stderr, "hydrant_domain_create: %s\n", hydrant_error_text());
    std::exit(1);
  }
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;
  ~Domain() { hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN); }

  hydrant_domain_t get() const { return domain_; }
  hydrant_stats_t stats() const {
    hydrant_stats_t stats{};
    stats.size = sizeof stats;
    hydrant_get_stats(domain_, &stats);
    return stats;
  }

 private:
  hydrant_domain_t domain_ = 0;
};

}  // namespace hydrant::bench
