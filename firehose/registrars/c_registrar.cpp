// Implements Registrar on top of a client's hydrant_registrar_t. Creation of a domain makes it; the cache
// then calls it on misses and evictions.
#include "firehose/registrars/c_registrar.hpp"

#include <algorithm>
#include <bit>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <new>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr uint32_t kMaxKeyBytes = 4096;
constexpr uint32_t kMaxExportBytes = 65536;
constexpr size_t kNameBytes = 32;
// The struct up to its required functions: no client can have an older one.
constexpr size_t kOldestSize = offsetof(hydrant_registrar_t, unpin_many);
// Larger than any future version of the struct: a `size` beyond it is uninitialised.
constexpr size_t kAbsurdSize = 4096;

static_assert(sizeof(MemoryRange) == sizeof(hydrant_range_t) &&
              offsetof(MemoryRange, len) == offsetof(hydrant_range_t, len));
static_assert(static_cast<int>(UnpinResult::kDone) == HYDRANT_UNPIN_DONE &&
              static_cast<int>(UnpinResult::kPending) == HYDRANT_UNPIN_PENDING &&
              static_cast<int>(UnpinResult::kBroken) == HYDRANT_UNPIN_BROKEN);
static_assert(static_cast<int>(ChargeScope::kDevice) == HYDRANT_SCOPE_DEVICE &&
              static_cast<int>(AddressKind::kDevice) == HYDRANT_ADDRESS_DEVICE &&
              bits(Access::kAll) == HYDRANT_ACCESS_ALL);

Status bad_field(const char* field, const char* rule) noexcept {
  return fail(Status::kBadArg, "hydrant_registrar_t: %s %s", field, rule);
}

Status check_values(const hydrant_registrar_t& f) noexcept {
  // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): copy_struct() initialises all of it
  if (f.pin == nullptr) return bad_field("pin", "is required");
  if (f.unpin == nullptr) return bad_field("unpin", "is required");
  if (f.key_bytes > kMaxKeyBytes) return bad_field("key_bytes", "is more than 4096");
  if (f.address_kind == HYDRANT_ADDRESS_DEVICE) {
    return fail(
        Status::kUnsupported,
        "hydrant_registrar_t: address_kind is HYDRANT_ADDRESS_DEVICE, but only host memory is "
        "cached so far; register device memory without the cache");
  }
  if (f.address_kind > HYDRANT_ADDRESS_DEVICE) return bad_field("address_kind", "is unknown");
  if (f.charge_scope > HYDRANT_SCOPE_DEVICE) return bad_field("charge_scope", "is unknown");
  if ((f.supported_access & ~HYDRANT_ACCESS_ALL) != 0) {
    return bad_field("supported_access", "has unknown bits");
  }
  if (f.granule_bytes != 0 && !std::has_single_bit(f.granule_bytes)) {
    return bad_field("granule_bytes", "is not a power of two");
  }
  if (f.divisible != 0 && f.key_bytes != 0) {
    return bad_field("divisible", "needs key_bytes to be 0: a key belongs to a whole pin");
  }
  if (f.export_bytes > kMaxExportBytes) return bad_field("export_bytes", "is more than 65536");
  if ((f.export_key == nullptr) != (f.import_key == nullptr)) {
    return bad_field("export_key and import_key", "must both be set or both be null");
  }
  if (f.export_key != nullptr && f.export_bytes == 0) {
    return bad_field("export_bytes", "is 0 although export_key is set");
  }
  if ((f.flags & ~uint64_t{HYDRANT_REGISTRAR_UNPIN_BEFORE_RELEASE}) != 0) {
    return bad_field("flags", "has unknown bits");
  }
  return Status::kOk;
}

// Copies the fields of the client's version of the struct; the others become zero.
Status copy_struct(const hydrant_registrar_t* from, hydrant_registrar_t* to) noexcept {
  if (from == nullptr)
    return fail(Status::kBadArg, "the hydrant_registrar_t is a null pointer: pass a registrar");
  if (from->size < kOldestSize || from->size > kAbsurdSize) {
    return bad_field("size", "is not sizeof(hydrant_registrar_t)");
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (size_t i = sizeof *to; i < from->size; ++i) {
    if (bytes[i] != 0) {
      return fail(Status::kUnsupported,
                  "hydrant_registrar_t: %zu bytes, but this library knows only %zu, and later "
                  "fields are not zero",
                  from->size, sizeof *to);
    }
  }
  *to = hydrant_registrar_t{};
  std::memcpy(to, from, std::min(from->size, sizeof *to));
  to->size = sizeof *to;
  return Status::kOk;
}

class CRegistrar final : public Registrar {
 public:
  explicit CRegistrar(const hydrant_registrar_t& functions) noexcept;
  ~CRegistrar() override {
    if (adopted_ && f_.destroy != nullptr) f_.destroy(f_.user);
  }

  const RegistrarTraits& traits() const noexcept override { return traits_; }
  Status pin(MemoryRange range, Access access, std::byte* key) noexcept override;
  UnpinResult unpin(MemoryRange range, const std::byte* key) noexcept override;
  UnpinResult unpin_many(const MemoryRange* ranges, const std::byte* const* keys,
                         size_t n) noexcept override;
  uint64_t charge(MemoryRange range) const noexcept override;
  uint64_t pending_charge() noexcept override;
  Status pin_async(MemoryRange range, Access access, std::byte* key, PinDone done,
                   void* context) noexcept override;
  Status export_key(MemoryRange range, const std::byte* key, std::byte* blob,
                    size_t* len) noexcept override;
  Status import_key(const std::byte* blob, size_t len, std::byte* key) noexcept override;
  void drop_import(const std::byte* key) noexcept override;
  Status implicit_key(Access access, std::byte* key) noexcept override;
  void forget_in_child() noexcept override {
    if (f_.forget_in_child != nullptr) f_.forget_in_child(f_.user);
  }
  void adopt() noexcept override { adopted_ = true; }

 private:
  // A pin_async() in progress; complete() frees it.
  struct Pending {
    const CRegistrar* self;
    MemoryRange range;
    PinDone done;
    void* context;
  };
  static void complete(void* context, int status, const void* key);

  Status pin_status(int code, MemoryRange range) const noexcept;
  Status key_status(int code, const char* call) const noexcept;
  UnpinResult unpin_result(int code) const noexcept;

  hydrant_registrar_t f_;
  char name_[kNameBytes] = "";
  RegistrarTraits traits_;
  bool adopted_ = false;
};

CRegistrar::CRegistrar(const hydrant_registrar_t& functions) noexcept : f_(functions) {
  std::strncpy(name_, f_.name != nullptr ? f_.name : "client", sizeof name_ - 1);
  f_.name = name_;
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  traits_.name = name_;
  traits_.key_bytes = f_.key_bytes;
  traits_.granule_bytes = std::max(f_.granule_bytes, page_bytes);
  if (f_.max_region_bytes != 0) traits_.max_region_bytes = f_.max_region_bytes;
  if (f_.max_regions != 0) traits_.max_regions = f_.max_regions;
  if (f_.max_charge_bytes != 0) traits_.max_charge_bytes = f_.max_charge_bytes;
  traits_.charge_scope = static_cast<ChargeScope>(f_.charge_scope);
  if (f_.supported_access != 0) traits_.supported = static_cast<Access>(f_.supported_access);
  traits_.divisible = f_.divisible != 0;
  traits_.exports = f_.export_key != nullptr;
  traits_.export_bytes = traits_.exports ? f_.export_bytes : 0;
  traits_.unpins_in_batches = f_.unpin_many != nullptr;
  traits_.asynchronous = f_.pin_async != nullptr;
  traits_.unpin_before_release = (f_.flags & HYDRANT_REGISTRAR_UNPIN_BEFORE_RELEASE) != 0;
  traits_.pin_base_ns = f_.pin_base_ns;
  traits_.pin_page_ns = f_.pin_page_ns;
  traits_.unpin_base_ns = f_.unpin_base_ns;
}

// Fails with the given text. If the client's function called hydrant_set_error_text(), its text comes first.
// Requires: a ScopedErrorText since before the call.
[[gnu::format(printf, 2, 3)]] Status explain(Status status, const char* format, ...) noexcept {
  char text[256];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  const bool explained = *last_error_text() != '\0';
  return explained ? add_context(status, "%s", text) : fail(status, "%s", text);
}

// Converts a code of the client's pin function to a Status with a text.
Status CRegistrar::pin_status(int code, MemoryRange range) const noexcept {
  const auto status = static_cast<Status>(code);
  const auto addr = static_cast<unsigned long long>(range.addr);
  switch (code) {
    case GASNET_OK: return Status::kOk;
    case HYDRANT_ERR_REFUSED:
    case GASNET_ERR_NOT_READY:
    case GASNET_ERR_RESOURCE:
    case HYDRANT_ERR_BROKEN:
      return explain(status, "registrar %s returned %s from pinning [0x%llx, +%zu)", name_,
                     status_name(status), addr, range.len);
    default:
      return explain(
          Status::kBroken,
          "registrar %s returned %d for pinning [0x%llx, +%zu), which is not a valid result of pin",
          name_, code, addr, range.len);
  }
}

Status CRegistrar::key_status(int code, const char* call) const noexcept {
  const auto status = static_cast<Status>(code);
  switch (status) {
    case Status::kOk: return status;
    case Status::kNotInit:
    case Status::kResource:
    case Status::kBadArg:
    case Status::kNotReady:
    case Status::kRefused:
    case Status::kBroken:
    case Status::kUnsupported:
      return explain(status, "registrar %s returned %s from %s", name_, status_name(status), call);
    case Status::kBarrierMismatch: break;
  }
  return fail(Status::kBroken,
              "registrar %s returned %d from %s, which is not a valid result of it", name_, code,
              call);
}

UnpinResult CRegistrar::unpin_result(int code) const noexcept {
  switch (code) {
    case HYDRANT_UNPIN_DONE: return UnpinResult::kDone;
    case HYDRANT_UNPIN_PENDING: return UnpinResult::kPending;
    case HYDRANT_UNPIN_BROKEN:
      (void)explain(Status::kBroken, "registrar %s could not unpin", name_);
      return UnpinResult::kBroken;
    default:
      (void)fail(Status::kBroken,
                 "registrar %s returned %d from unpin, which is not a valid result of unpin", name_,
                 code);
      return UnpinResult::kBroken;
  }
}

Status CRegistrar::pin(MemoryRange range, Access access, std::byte* key) noexcept {
  const ScopedErrorText fresh;
  return pin_status(f_.pin(f_.user, range.addr, range.len, bits(access), key), range);
}

UnpinResult CRegistrar::unpin(MemoryRange range, const std::byte* key) noexcept {
  const ScopedErrorText fresh;
  return unpin_result(f_.unpin(f_.user, range.addr, range.len, key));
}

UnpinResult CRegistrar::unpin_many(const MemoryRange* ranges, const std::byte* const* keys,
                                   size_t n) noexcept {
  if (f_.unpin_many == nullptr) return Registrar::unpin_many(ranges, keys, n);
  const ScopedErrorText fresh;
  return unpin_result(f_.unpin_many(f_.user, reinterpret_cast<const hydrant_range_t*>(ranges),
                                    reinterpret_cast<const void* const*>(keys), n));
}

uint64_t CRegistrar::charge(MemoryRange range) const noexcept {
  return f_.charge != nullptr ? f_.charge(f_.user, range.addr, range.len) : range.len;
}

uint64_t CRegistrar::pending_charge() noexcept {
  return f_.pending_charge != nullptr ? f_.pending_charge(f_.user) : 0;
}

Status CRegistrar::pin_async(MemoryRange range, Access access, std::byte* key, PinDone done,
                             void* context) noexcept {
  if (f_.pin_async == nullptr) return pin(range, access, key);
  auto* pending = new (std::nothrow) Pending{this, range, done, context};
  if (pending == nullptr)
    return fail(Status::kResource,
                "out of memory for an asynchronous pin: free memory, or raise ulimit -v");
  const ScopedErrorText fresh;
  const int code =
      f_.pin_async(f_.user, range.addr, range.len, bits(access), key, &complete, pending);
  // The completion owns `pending` now; it may already have run on another thread.
  if (code == GASNET_ERR_NOT_READY) return Status::kNotReady;
  delete pending;
  return pin_status(code, range);
}

void CRegistrar::complete(void* context, int status, const void* key) {
  auto* pending = static_cast<Pending*>(context);
  const Pending pin = *pending;
  delete pending;
  const ScopedErrorText fresh;  // hides this thread's earlier text, which is unrelated
  pin.done(pin.context, pin.self->pin_status(status, pin.range),
           static_cast<const std::byte*>(key));
}

Status CRegistrar::export_key(MemoryRange range, const std::byte* key, std::byte* blob,
                              size_t* len) noexcept {
  if (f_.export_key == nullptr) return Registrar::export_key(range, key, blob, len);
  const size_t room = *len;
  size_t used = room;
  const ScopedErrorText fresh;
  const Status status =
      key_status(f_.export_key(f_.user, range.addr, range.len, key, blob, &used), "export_key");
  if (status == Status::kBadArg && room < traits_.export_bytes) {
    // If the function did not report the size that it needs, export_bytes is enough.
    *len = used > room ? std::min<size_t>(used, traits_.export_bytes) : traits_.export_bytes;
    return add_context(status, "there is room for %zu bytes, %zu are enough", room, *len);
  }
  if (status != Status::kOk) return status;
  if (used > room || used > traits_.export_bytes) {
    return fail(Status::kBroken, "registrar %s exported %zu bytes into %zu, of at most %u", name_,
                used, room, traits_.export_bytes);
  }
  *len = used;
  return Status::kOk;
}

Status CRegistrar::import_key(const std::byte* blob, size_t len, std::byte* key) noexcept {
  if (f_.import_key == nullptr) return Registrar::import_key(blob, len, key);
  const ScopedErrorText fresh;
  return key_status(f_.import_key(f_.user, blob, len, key), "import_key");
}

void CRegistrar::drop_import(const std::byte* key) noexcept {
  if (f_.drop_import != nullptr) f_.drop_import(f_.user, key);
}

Status CRegistrar::implicit_key(Access access, std::byte* key) noexcept {
  if (f_.implicit_key == nullptr) return Registrar::implicit_key(access, key);
  const ScopedErrorText fresh;
  return key_status(f_.implicit_key(f_.user, bits(access), key), "implicit_key");
}

}  // namespace

std::unique_ptr<Registrar> make_c_registrar(const hydrant_registrar_t* functions,
                                            Status* status) noexcept {
  hydrant_registrar_t copy;
  *status = copy_struct(functions, &copy);
  if (*status == Status::kOk) *status = check_values(copy);
  if (*status != Status::kOk) return nullptr;
  std::unique_ptr<Registrar> registrar(new (std::nothrow) CRegistrar(copy));
  if (registrar == nullptr)
    *status =
        fail(Status::kResource, "out of memory for a registrar: free memory, or raise ulimit -v");
  return registrar;
}

}  // namespace hydrant
