// Creates and destroys the domains of the random cache client.
#include "tests/fuzz/cache_client.hpp"

namespace hydrant::fuzz {

using testing::kPage;

CacheWorld::CacheWorld(Input& input, bool threads) : has_threads(threads) {
  for (size_t i = 0; i < kDomains; ++i) create(input, i);
}

CacheWorld::~CacheWorld() {
  for (size_t i = 0; i < kDomains; ++i) {
    if (domains[i] != nullptr) destroy(i, HYDRANT_FINI_UNPIN);
  }
}

void CacheWorld::create(Input& input, size_t i) {
  constexpr uint32_t kKeys[] = {8, 0, 24, 8};
  auto made = std::make_unique<FuzzedDomain>(arena, kKeys[input.below(4)]);
  FuzzedDomain& domain = *made;
  hydrant_registrar_t& table = domain.registrar.table;
  const uint8_t trouble = input.byte();
  if ((trouble & 1) != 0) domain.registrar.fail_pins(input.byte(), trouble);
  if ((trouble & 2) != 0) {
    domain.registrar.refuse(
        arena.addr(input.below(kPages)), kPage * 2,
        input.below(2) != 0 ? HYDRANT_LOCAL_WRITE : testing::RecordingRegistrar::kAnyAccess);
  }
  if ((trouble & 4) != 0) domain.registrar.answer_unpins(HYDRANT_UNPIN_PENDING);
  if ((trouble & 8) != 0) table.max_region_bytes = (1 + input.below(16)) * kPage;
  if ((trouble & 16) != 0) domain.registrar.allow_bytes((1 + input.below(64)) * kPage);
  if ((trouble & 32) != 0) table.supported_access = HYDRANT_LOCAL_WRITE | HYDRANT_REMOTE_READ;

  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.name = "fuzzed";
  options.registrar = &table;
  options.mode = input.below(3);
  constexpr uint32_t kWatches[] = {HYDRANT_WATCH_CLIENT, HYDRANT_WATCH_NONE, HYDRANT_WATCH_AUTO,
                                   HYDRANT_WATCH_CLIENT};
  options.watch = kWatches[input.below(4)];
  options.budget_bytes = (1 + input.below(64)) * kPage;
  options.max_regions = 1 + input.below(64);
  options.merge_bytes = input.below(2) != 0 ? 1 : input.below(32) * kPage;
  options.stream_bytes = input.below(2) != 0 ? 1 : input.below(32) * kPage;
  options.bucket_bytes = options.mode == HYDRANT_MODE_PAGE ? kPage << input.below(4) : 0;
  options.eager_access = input.below(2) != 0 ? 0 : input.byte() & HYDRANT_ACCESS_ALL;
  domain.page_mode = options.mode == HYDRANT_MODE_PAGE;
  domain.has_oldest = !has_threads && options.watch == HYDRANT_WATCH_CLIENT;
  if (!has_threads && (trouble & 64) != 0) {
    // Simulates a free() inside a registrar, which may cause an invalidation.
    domain.registrar.inside = [&domain, &memory = arena](uintptr_t addr, size_t len) {
      const uint64_t calls = domain.registrar.pin_calls();
      if (calls % 4 == 0) hydrant_set_error_text("a text from the registrar");
      if (calls % 5 != 0 || domain.handle == 0) return;
      const size_t first = memory.index(addr);
      for (size_t page = first; page < first + len / kPage; ++page)
        domain.oldest[page] = domain.registrar.next_serial();
      const int status = hydrant_invalidate(domain.handle, memory.page(first), len);
      HYDRANT_FUZZ_CHECK(status == GASNET_OK);
    };
  }
  const int status = hydrant_domain_create(&options, &domain.handle);
  HYDRANT_FUZZ_CHECK((status == GASNET_OK) == (domain.handle != 0));
  if (status != GASNET_OK) {
    HYDRANT_FUZZ_CHECK(domain.registrar.destroyed() == 0 && hydrant_error_text()[0] != 0);
    return;
  }
  domains[i] = std::move(made);
}

void CacheWorld::destroy(size_t i, uint32_t flags) {
  FuzzedDomain& domain = *domains[i];
  HYDRANT_FUZZ_CHECK(hydrant_domain_destroy(domain.handle, flags) == GASNET_OK);
  HYDRANT_FUZZ_CHECK(domain.registrar.destroyed() == 1);
  HYDRANT_FUZZ_CHECK(domain.callbacks_due.load() == 0);
  HYDRANT_FUZZ_CHECK_TEXT(domain.registrar.problems());
  if (flags == HYDRANT_FINI_UNPIN) {
    HYDRANT_FUZZ_CHECK(domain.registrar.live() == 0 && domain.registrar.live_bytes() == 0);
    HYDRANT_FUZZ_CHECK(domain.registrar.pins() == domain.registrar.unpins());
  }
  HYDRANT_FUZZ_CHECK(hydrant_domain_destroy(domain.handle, flags) == GASNET_ERR_NOT_INIT);
  dead_handles.push_back(domain.handle);
  domains[i].reset();
}

}  // namespace hydrant::fuzz
