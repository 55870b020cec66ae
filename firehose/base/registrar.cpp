// Defaults for the optional methods of Registrar. The cache calls them for registrars that do not override.
#include "firehose/base/registrar.hpp"

#include <algorithm>

namespace hydrant {

UnpinResult Registrar::unpin_many(const MemoryRange* ranges, const std::byte* const* keys,
                                  size_t n) noexcept {
  auto worst = UnpinResult::kDone;
  for (size_t i = 0; i < n; ++i) worst = std::max(worst, unpin(ranges[i], keys[i]));
  return worst;
}

Status Registrar::pin_async(MemoryRange range, Access access, std::byte* key, PinDone /*done*/,
                            void* /*context*/) noexcept {
  return pin(range, access, key);
}

Status Registrar::export_key(MemoryRange /*range*/, const std::byte* /*key*/, std::byte* /*blob*/,
                             size_t* /*len*/) noexcept {
  return fail(Status::kUnsupported, "registrar %s does not export keys", traits().name);
}

Status Registrar::import_key(const std::byte* /*blob*/, size_t /*len*/,
                             std::byte* /*key*/) noexcept {
  return fail(Status::kUnsupported, "registrar %s does not import keys", traits().name);
}

Status Registrar::implicit_key(Access /*access*/, std::byte* /*key*/) noexcept {
  return fail(Status::kUnsupported, "registrar %s has no key for all of memory", traits().name);
}

Status Registrar::pin_dmabuf(int /*fd*/, uint64_t /*offset*/, MemoryRange /*range*/,
                             Access /*access*/, std::byte* /*key*/) noexcept {
  return fail(Status::kUnsupported,
              "registrar %s pins host memory only: dma-bufs need a verbs device", traits().name);
}

}  // namespace hydrant
