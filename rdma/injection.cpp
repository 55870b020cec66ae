// Loads libhydrant_injected and passes calls to it.
#include "rdma/injection.hpp"

#include "firehose/base/uncancelled.hpp"
#include "rdma/config/job_knobs.hpp"
#include "rdma/injected/injected_object.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>

namespace hydrant {
namespace {

constexpr char kObject[] = "libhydrant_injected.so." HYDRANT_INJECTED_SOVERSION;
constexpr char kRemedy[] = "install it beside libhydrant, or leave HYDRANT_INJECT out";

constexpr InjectionHost kHost = {
    [](Status status, const char* text) noexcept { return fail(status, "%s", text); },
    [](Status status, const char* text) noexcept { return add_context(status, "%s", text); },
    []() noexcept { return last_error_text(); }};

std::atomic<const InjectedObject*> g_object{nullptr};

// Loads the object from the folder of the library or program that contains this code, else by the dynamic
// linker's search. It is never unloaded.
void* load_object() noexcept {
  Dl_info info{};
  if (dladdr(kObject, &info) != 0 && info.dli_fname != nullptr) {
    const std::string own = info.dli_fname;
    const size_t slash = own.rfind('/');
    if (slash != std::string::npos) {
      const std::string beside = own.substr(0, slash + 1) + kObject;
      void* found =
          uncancelled::call(dlopen, beside.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
      if (found != nullptr) return found;
    }
  }
  return uncancelled::call(dlopen, kObject, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

// Null, with an error: kUnsupported.
const InjectedObject* find_object() noexcept {
  if (const InjectedObject* loaded = g_object.load(std::memory_order_acquire)) return loaded;
  void* library = load_object();
  const void* table = library != nullptr ? dlsym(library, kInjectedObjectSymbol) : nullptr;
  if (table == nullptr) {
    const char* error = dlerror();
    (void)fail(Status::kUnsupported, "HYDRANT_INJECT needs %s, which cannot be loaded: %s; %s",
               kObject, error != nullptr ? error : "not found", kRemedy);
    return nullptr;
  }
  const auto* found = static_cast<const InjectedObject*>(table);
  if (std::strcmp(found->version, HYDRANT_INJECTED_VERSION) != 0) {
    (void)fail(Status::kUnsupported, "HYDRANT_INJECT needs %s of this build, %s, and found %s; %s",
               kObject, HYDRANT_INJECTED_VERSION, found->version, kRemedy);
    return nullptr;
  }
  found->set_host(kHost);
  g_object.store(found, std::memory_order_release);
  return found;
}

}  // namespace

Status read_injection(Injection* injection) noexcept {
  const char* text = knob_text(JobKnob::kInject);
  if (text[std::strspn(text, " ")] == '\0') {
    *injection = {};
    return Status::kOk;
  }
  const InjectedObject* object = find_object();
  return object != nullptr ? object->parse(text, injection) : Status::kUnsupported;
}

Status inject(const Injection& injection, Bootstrap& bootstrap,
              std::unique_ptr<Transport>* transport) noexcept {
  if (!injection.hides_memory()) return Status::kOk;
  const InjectedObject* object = find_object();
  return object != nullptr ? object->inject(injection, bootstrap, transport) : Status::kUnsupported;
}

}  // namespace hydrant
