// hydrant/pin_cache.hpp - hydrant/pin_cache.h for C++17 and later: pins and domains that end with their
// scope, callables as callbacks, and a base class for the client's own registrars.
//
//     namespace pins = hydrant::pin_cache;
//     pins::Domain domain(options);                   // options.registrar_name = "uring"; ...
//     if (!domain) ... domain.error() ...
//     if (pins::Pin pin = domain.pin(buffer, length, HYDRANT_LOCAL_WRITE)) {
//       ... pin.key_as<uint32_t>() ...                // registered until the end of this scope
//     } else {
//       ... pin.status(), pin.error(): copy through a bounce buffer ...
//     }
//
// Header only, over the C functions. Their contracts (units, errors, waits, cost) apply unchanged; only
// differences are documented here. Rights, modes and codes are the C constants. Compiles with and
// without exceptions and RTTI. No exception may pass through the library: callables and registrars that
// throw end the program. Out of memory, pin_async() returns GASNET_ERR_RESOURCE; std::vector behaves as
// usual.
//
// Threads: any thread may call const functions of a Domain, and release a Pin that another thread took.
// Do not move, assign or destroy an object while another thread uses it.
#ifndef HYDRANT_PIN_CACHE_HPP
#define HYDRANT_PIN_CACHE_HPP

#include <hydrant/pin_cache.h>

#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace hydrant::pin_cache {

// A hold that is released at the end of its scope, or the reason why there is none. May outlive its
// domain; then only status(), moving, release() and destruction are allowed, and have no effect.
class [[nodiscard]] Pin {
 public:
  // No hold: status() is GASNET_ERR_NOT_INIT, as for a pin that was moved from or released.
  Pin() noexcept = default;
  // Takes ownership of a hold, or stores a failure, of the C functions.
  explicit Pin(hydrant_pin_t pin) noexcept : pin_(pin) {}
  Pin(Pin&& other) noexcept : pin_(other.detach()) {}
  Pin& operator=(Pin&& other) noexcept {
    if (this != &other) {
      (void)release();
      pin_ = other.detach();
    }
    return *this;
  }
  ~Pin() {
    if (pin_.region != nullptr) (void)hydrant_release(pin_);
  }

  explicit operator bool() const noexcept { return pin_.region != nullptr; }
  int status() const noexcept { return hydrant_pin_status(pin_); }
  // Why there is no hold; "" if there is one. Call it on the thread that tried to pin, before the
  // thread's next failure: see hydrant_error_text().
  const char* error() const noexcept {
    if (*this) return "";
    const bool nothing = pin_.hold == kNothing || pin_.hold == 0;
    return nothing ? "nothing is pinned here: empty, moved from or released" : hydrant_error_text();
  }

  // The registered range, which contains the requested range; 0 without a hold.
  std::uintptr_t addr() const noexcept { return *this ? pin_.region->addr : 0; }
  std::size_t len() const noexcept { return *this ? pin_.region->len : 0; }
  // The registrar's key; null without a hold, without keys, and for a pin of several parts.
  const void* key() const noexcept { return *this ? pin_.region->key : nullptr; }
  // The key as a T; T{} if key() is null. sizeof(T) must not exceed the domain's key_bytes(), which is
  // asserted unless NDEBUG is defined.
  template <class T>
  T key_as() const noexcept {
    static_assert(std::is_trivially_copyable_v<T>, "a key is bytes");
    T value{};
    const void* const bytes = key();
    if (bytes == nullptr) return value;
    assert(sizeof value <= hydrant_pin_key_bytes(pin_) && "the registrar's key is smaller than T");
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  // The number of regions with their own key: 1, in page mode one per bucket, 0 without a hold. Cost: a
  // table lookup.
  std::size_t parts() const noexcept { return hydrant_pin_parts(pin_, 0, nullptr); }
  // Part i; all zero if it does not exist.
  hydrant_region_t part(std::size_t i) const noexcept {
    hydrant_region_t region{};
    (void)hydrant_pin_parts(pin_, i, &region);
    return region;
  }

  // Writes the key for another process: *len is the buffer size, then the blob size, or the required
  // size after GASNET_ERR_BAD_ARG.
  int export_key(void* blob, std::size_t* len) const noexcept {
    return hydrant_export_key(pin_, blob, len);
  }
  // Move bytes of the pinned range to or from a file through the pinned pages ("uring" only).
  int write_file(const void* from, std::size_t len, int fd, std::uint64_t offset) const noexcept {
    return hydrant_uring_move(pin_, from, len, fd, offset, 1);
  }
  int read_file(void* to, std::size_t len, int fd, std::uint64_t offset) const noexcept {
    return hydrant_uring_move(pin_, to, len, fd, offset, 0);
  }

  // Releases the hold now and returns the result of hydrant_release(); OK without a hold.
  int release() noexcept { return *this ? hydrant_release(detach()) : GASNET_OK; }
  // The hold, for the C functions. get() keeps ownership; after detach() the caller must release the hold.
  hydrant_pin_t get() const noexcept { return pin_; }
  hydrant_pin_t detach() noexcept { return std::exchange(pin_, hydrant_pin_t{nullptr, kNothing}); }

 private:
  // Marks an empty pin by a bit that hydrant_pin_status() ignores.
  static constexpr std::uint64_t kNothing = (std::uint64_t{1} << 32) | GASNET_ERR_NOT_INIT;
  hydrant_pin_t pin_{nullptr, kNothing};
};

// Pins of all ranges, or no pins and the reason.
struct [[nodiscard]] PinMany {
  int status = GASNET_OK;
  std::vector<Pin> pins;  // pins[i] is the pin of ranges[i]; empty unless status is OK
  explicit operator bool() const noexcept { return status == GASNET_OK; }
};

// Base class for the client's own registrar: derive from it and set DomainOptions::registrar. Each
// function has the contract of the same function in hydrant_registrar_t: concurrent calls from any
// thread, and no calls into the domain except invalidate(). All functions are noexcept, and so must be
// their overrides.
class Registrar {
 public:
  // Constant properties; zero selects the default of hydrant_registrar_t.
  struct Facts {
    const char* name = "client";
    std::uint32_t key_bytes = 0;
    std::uint32_t charge_scope = HYDRANT_SCOPE_NONE;
    std::uint32_t supported_access = HYDRANT_ACCESS_ALL;
    std::uint32_t address_kind = HYDRANT_ADDRESS_HOST;
    std::size_t granule_bytes = 0;
    std::size_t max_region_bytes = 0;
    std::uint64_t max_regions = 0;
    std::uint64_t max_charge_bytes = 0;
    bool divisible = false;
    bool asynchronous = false;       // pin_async() is overridden
    std::uint32_t export_bytes = 0;  // nonzero: export_key() and import_key() are overridden
    std::uint32_t pin_base_ns = 0, pin_page_ns = 0, unpin_base_ns = 0;
    bool unpin_before_release = false;  // HYDRANT_REGISTRAR_UNPIN_BEFORE_RELEASE
  };

  Registrar() = default;
  Registrar(const Registrar&) = delete;
  Registrar& operator=(const Registrar&) = delete;
  virtual ~Registrar() = default;

  // Called once per domain, at its creation.
  virtual Facts facts() const noexcept = 0;
  virtual int pin(std::uintptr_t addr, std::size_t len, std::uint32_t access,
                  void* key) noexcept = 0;
  virtual int unpin(std::uintptr_t addr, std::size_t len, const void* key) noexcept = 0;

  // Undoes n pins and returns the worst result. The default calls unpin() for each.
  virtual int unpin_many(const hydrant_range_t* ranges, const void* const* keys,
                         std::size_t n) noexcept {
    int worst = HYDRANT_UNPIN_DONE;
    for (std::size_t i = 0; i < n; ++i) {
      const int result = unpin(ranges[i].addr, ranges[i].len, keys[i]);
      if (result > worst) worst = result;
    }
    return worst;
  }
  virtual std::uint64_t charge(std::uintptr_t /*addr*/, std::size_t len) noexcept { return len; }
  virtual std::uint64_t pending_charge() noexcept { return 0; }
  virtual int pin_async(std::uintptr_t addr, std::size_t len, std::uint32_t access, void* key,
                        hydrant_pin_done_fn /*done*/, void* /*context*/) noexcept {
    return pin(addr, len, access, key);
  }
  virtual int export_key(std::uintptr_t /*addr*/, std::size_t /*len*/, const void* /*key*/,
                         void* /*blob*/, std::size_t* /*blob_len*/) noexcept {
    return HYDRANT_ERR_UNSUPPORTED;
  }
  virtual int import_key(const void* /*blob*/, std::size_t /*len*/, void* /*key*/) noexcept {
    return HYDRANT_ERR_UNSUPPORTED;
  }
  virtual int implicit_key(std::uint32_t /*access*/, void* /*key*/) noexcept {
    return HYDRANT_ERR_UNSUPPORTED;
  }
  // Runs in the child of a fork; may make async-signal-safe calls only.
  virtual void forget_in_child() noexcept {}
  // A domain that used this registrar has ended. Not called if the domain could not be created.
  virtual void domain_ended() noexcept {}

  // This object as a C struct. Cost: one more indirect call for each function.
  hydrant_registrar_t c_struct() noexcept {
    const Facts facts = this->facts();
    hydrant_registrar_t c{};
    c.size = sizeof c;
    c.user = this;
    copy_facts(facts, &c);
    set_functions(facts, &c);
    return c;
  }

 private:
  static Registrar& self(void* user) noexcept { return *static_cast<Registrar*>(user); }

  static void copy_facts(const Facts& facts, hydrant_registrar_t* c) noexcept {
    c->name = facts.name;
    c->key_bytes = facts.key_bytes;
    c->address_kind = facts.address_kind;
    c->charge_scope = facts.charge_scope;
    c->supported_access = facts.supported_access;
    c->granule_bytes = facts.granule_bytes;
    c->max_region_bytes = facts.max_region_bytes;
    c->max_regions = facts.max_regions;
    c->max_charge_bytes = facts.max_charge_bytes;
    c->divisible = facts.divisible ? 1 : 0;
    c->export_bytes = facts.export_bytes;
    c->pin_base_ns = facts.pin_base_ns;
    c->pin_page_ns = facts.pin_page_ns;
    c->unpin_base_ns = facts.unpin_base_ns;
    if (facts.unpin_before_release) c->flags |= HYDRANT_REGISTRAR_UNPIN_BEFORE_RELEASE;
  }

  static void set_functions(const Facts& facts, hydrant_registrar_t* c) noexcept {
    c->pin = [](void* user, std::uintptr_t addr, std::size_t len, std::uint32_t access,
                void* key) noexcept { return self(user).pin(addr, len, access, key); };
    c->unpin = [](void* user, std::uintptr_t addr, std::size_t len, const void* key) noexcept {
      return self(user).unpin(addr, len, key);
    };
    c->unpin_many = [](void* user, const hydrant_range_t* ranges, const void* const* keys,
                       std::size_t n) noexcept { return self(user).unpin_many(ranges, keys, n); };
    c->charge = [](void* user, std::uintptr_t addr, std::size_t len) noexcept {
      return self(user).charge(addr, len);
    };
    c->pending_charge = [](void* user) noexcept { return self(user).pending_charge(); };
    c->implicit_key = [](void* user, std::uint32_t access, void* key) noexcept {
      return self(user).implicit_key(access, key);
    };
    c->forget_in_child = [](void* user) noexcept { self(user).forget_in_child(); };
    c->destroy = [](void* user) noexcept { self(user).domain_ended(); };
    if (facts.asynchronous) set_async(c);
    if (facts.export_bytes != 0) set_export(c);
  }

  static void set_async(hydrant_registrar_t* c) noexcept {
    c->pin_async = [](void* user, std::uintptr_t addr, std::size_t len, std::uint32_t access,
                      void* key, hydrant_pin_done_fn done, void* context) noexcept {
      return self(user).pin_async(addr, len, access, key, done, context);
    };
  }

  static void set_export(hydrant_registrar_t* c) noexcept {
    c->export_key = [](void* user, std::uintptr_t addr, std::size_t len, const void* key,
                       void* blob, std::size_t* blob_len) noexcept {
      return self(user).export_key(addr, len, key, blob, blob_len);
    };
    c->import_key = [](void* user, const void* blob, std::size_t len, void* key) noexcept {
      return self(user).import_key(blob, len, key);
    };
  }
};

// hydrant_domain_options_t with its defaults; set the fields that differ. Owns no object.
struct DomainOptions {
  const char* name = nullptr;
  // At most one of the next three; without any: FIREHOSE_REGISTRAR, or "auto".
  const char* registrar_name = nullptr;
  Registrar* registrar = nullptr;  // must outlive the domain
  const hydrant_registrar_t* c_registrar = nullptr;
  const hydrant_policy_t* policy = nullptr;
  std::uint32_t mode = HYDRANT_MODE_DEFAULT;
  std::uint32_t watch = HYDRANT_WATCH_DEFAULT;
  std::uint32_t address_kind = HYDRANT_ADDRESS_HOST;
  std::uint32_t eager_access = 0;
  std::uint64_t budget_bytes = 0;
  std::uint64_t max_regions = 0;
  std::size_t max_region_bytes = 0;
  std::size_t bucket_bytes = 0;
  std::size_t merge_bytes = 0;
  const hydrant_range_t* prepinned = nullptr;
  const void* const* prepinned_keys = nullptr;
  std::size_t prepinned_count = 0;
  std::uint32_t prepinned_access = 0;
  std::size_t stream_bytes = 0;

  // For hydrant_domain_create(); leaves out `registrar`, see Registrar::c_struct().
  hydrant_domain_options_t c_struct() const noexcept {
    hydrant_domain_options_t c;
    hydrant_domain_options_init(&c);
    c.name = name;
    c.registrar_name = registrar_name;
    c.registrar = c_registrar;
    c.policy = policy;
    c.mode = mode;
    c.watch = watch;
    c.address_kind = address_kind;
    c.eager_access = eager_access;
    c.budget_bytes = budget_bytes;
    c.max_regions = max_regions;
    c.max_region_bytes = max_region_bytes;
    c.bucket_bytes = bucket_bytes;
    c.merge_bytes = merge_bytes;
    c.prepinned = prepinned;
    c.prepinned_keys = prepinned_keys;
    c.prepinned_count = prepinned_count;
    c.prepinned_access = prepinned_access;
    c.stream_bytes = stream_bytes;
    return c;
  }
};

// A cache over one registrar that ends with its scope: all regions are unpinned, held regions included.
class Domain {
 public:
  // No domain: status() and every call return GASNET_ERR_NOT_INIT, as for a domain that was moved from.
  Domain() noexcept = default;
  // status() and error() report whether the creation succeeded. Errors and cost: hydrant_domain_create().
  explicit Domain(const DomainOptions& options) noexcept : status_(create(options, &handle_)) {}
  Domain(Domain&& other) noexcept
      : handle_(std::exchange(other.handle_, 0)),
        status_(std::exchange(other.status_, GASNET_ERR_NOT_INIT)) {}
  Domain& operator=(Domain&& other) noexcept {
    if (this != &other) {
      (void)end();
      handle_ = std::exchange(other.handle_, 0);
      status_ = std::exchange(other.status_, GASNET_ERR_NOT_INIT);
    }
    return *this;
  }
  ~Domain() { (void)end(); }

  explicit operator bool() const noexcept { return handle_ != 0; }
  int status() const noexcept { return status_; }
  // Why the creation failed; "" if it succeeded. Call it on the creating thread, before its next failure.
  const char* error() const noexcept { return *this ? "" : hydrant_error_text(); }
  // For the C functions; 0 if there is no domain. Do not destroy it.
  hydrant_domain_t handle() const noexcept { return handle_; }
  // Ends the domain now and returns the status; OK if there is none. No other thread may be inside a call.
  int end(std::uint32_t flags = HYDRANT_FINI_UNPIN) noexcept {
    if (handle_ == 0) return GASNET_OK;
    const int status = hydrant_domain_destroy(handle_, flags);
    if (status == GASNET_ERR_BAD_ARG) return status;  // unknown flags: it lives on
    handle_ = 0;
    status_ = GASNET_ERR_NOT_INIT;
    return status;
  }

  Pin pin(const void* addr, std::size_t len, std::uint32_t access) const noexcept {
    return Pin(hydrant_pin(handle_, addr, len, access));
  }
  Pin try_pin(const void* addr, std::size_t len, std::uint32_t access) const noexcept {
    return Pin(hydrant_try_pin(handle_, addr, len, access));
  }
  Pin partial_pin(const void* addr, std::size_t len, std::uint32_t access) const noexcept {
    return Pin(hydrant_partial_pin(handle_, addr, len, access));
  }
  // Waits at most `timeout`: not at all if that is negative, without limit from 292 years up.
  template <class Rep, class Period>
  Pin pin_wait(const void* addr, std::size_t len, std::uint32_t access,
               std::chrono::duration<Rep, Period> timeout) const noexcept {
    return Pin(hydrant_pin_wait(handle_, addr, len, access, to_ns(timeout)));
  }

  // All or none. Allocates the vectors before pinning.
  PinMany pin_many(const hydrant_range_t* ranges, std::size_t n, std::uint32_t access) const {
    std::vector<hydrant_pin_t> raw(n);
    PinMany answer;
    answer.pins.reserve(n);
    answer.status = hydrant_pin_many(handle_, ranges, n, access, raw.data());
    if (answer.status != GASNET_OK) return answer;
    for (const hydrant_pin_t pin : raw) answer.pins.emplace_back(pin);
    return answer;
  }
  PinMany pin_many(const std::vector<hydrant_range_t>& ranges, std::uint32_t access) const {
    return pin_many(ranges.data(), ranges.size(), access);
  }

  // Calls done(Pin) once: now, from poll(), or at the end of the domain with GASNET_ERR_NOT_INIT. If
  // the result is not OK, `done` is destroyed without a call. Cost: one allocation beside the pin.
  template <class Done>
  [[nodiscard]] int pin_async(const void* addr, std::size_t len, std::uint32_t access,
                              Done&& done) const {
    using Callable = std::decay_t<Done>;
    static_assert(std::is_invocable_v<Callable&, Pin>, "done is called with a Pin");
    std::unique_ptr<Callable> callable(new (std::nothrow) Callable(std::forward<Done>(done)));
    if (callable == nullptr) {
      hydrant_set_error_text("no memory for a callback");
      return GASNET_ERR_RESOURCE;
    }
    const int status =
        hydrant_pin_async(handle_, addr, len, access, &run_done<Callable>, callable.get());
    if (status == GASNET_OK) (void)callable.release();  // run_done() deletes it
    return status;
  }

  int invalidate(const void* addr, std::size_t len) const noexcept {
    return hydrant_invalidate(handle_, addr, len);
  }
  int vouch(const void* addr, std::size_t len) const noexcept {
    return hydrant_vouch(handle_, addr, len);
  }
  int unvouch(const void* addr, std::size_t len) const noexcept {
    return hydrant_unvouch(handle_, addr, len);
  }
  // Returns the number of callbacks that ran, or minus a status.
  int poll() const noexcept { return hydrant_poll(handle_); }
  int flush() const noexcept { return hydrant_flush(handle_); }

  // Converts a peer's blob (untrusted) into a key; `key` needs key_bytes() bytes.
  int import_key(const void* blob, std::size_t len, void* key) const noexcept {
    return hydrant_import_key(handle_, blob, len, key);
  }
  int implicit_key(std::uint32_t access, void* key) const noexcept {
    return hydrant_implicit_key(handle_, access, key);
  }

  // All zero if there is no domain.
  hydrant_stats_t stats() const noexcept {
    hydrant_stats_t stats{};
    stats.size = sizeof stats;
    if (hydrant_get_stats(handle_, &stats) != GASNET_OK) stats = hydrant_stats_t{};
    return stats;
  }
  // Valid until the domain ends; "" without a domain.
  const char* registrar_name() const noexcept { return hydrant_registrar_name(handle_); }
  std::uint32_t key_bytes() const noexcept { return hydrant_key_bytes(handle_); }

 private:
  static int create(const DomainOptions& options, hydrant_domain_t* handle) noexcept {
    hydrant_domain_options_t c = options.c_struct();
    if (options.registrar == nullptr) return hydrant_domain_create(&c, handle);
    if (c.registrar != nullptr) {
      hydrant_set_error_text("DomainOptions: registrar and c_registrar exclude each other");
      return GASNET_ERR_BAD_ARG;
    }
    const hydrant_registrar_t registrar = options.registrar->c_struct();
    c.registrar = &registrar;
    return hydrant_domain_create(&c, handle);
  }

  template <class Callable>
  static void run_done(void* context, hydrant_pin_t pin) noexcept {
    const std::unique_ptr<Callable> done(static_cast<Callable*>(context));
    (*done)(Pin(pin));
  }

  template <class Rep, class Period>
  static std::uint64_t to_ns(std::chrono::duration<Rep, Period> timeout) noexcept {
    const double ns = std::chrono::duration<double, std::nano>(timeout).count();
    if (!(ns > 0)) return 0;
    if (ns >= 9.2e18) return UINT64_MAX;
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(timeout).count());
  }

  hydrant_domain_t handle_ = 0;
  int status_ = GASNET_ERR_NOT_INIT;
};

}  // namespace hydrant::pin_cache

#endif
