// The C functions of gasnet_mk.h. Host memory is the only kind, so there is no object of a kind.
#include "am/call/in_call.hpp"
#include "am/job/job.hpp"

#include <cstring>
#include <gasnet_mk.h>

using namespace hydrant;

namespace {

// The class as a number: a C program may pass one that the enumeration does not have.
unsigned class_of(const gex_MK_Create_args_t& args) noexcept {
  unsigned number = 0;
  static_assert(sizeof number == sizeof args.gex_class);
  std::memcpy(&number, &args.gex_class, sizeof number);
  return number;
}

// The name of a class of devices; null for other values.
const char* device_class_name(unsigned kind_class) noexcept {
  switch (kind_class) {
    case GEX_MK_CLASS_CUDA_UVA: return "GEX_MK_CLASS_CUDA_UVA";
    case GEX_MK_CLASS_HIP: return "GEX_MK_CLASS_HIP";
    case GEX_MK_CLASS_ZE: return "GEX_MK_CLASS_ZE";
    case GEX_MK_CLASS_HOST: break;
  }
  return nullptr;
}

Status create_kind(const gex_MK_t* memkind_p, gex_Client_t client, const gex_MK_Create_args_t* args,
                   gex_Flags_t flags) noexcept {
  if (client == GEX_CLIENT_INVALID) return fail(Status::kBadArg, "there is no client");
  if (memkind_p == nullptr || args == nullptr)
    return fail(Status::kBadArg, "the place for the kind, or its arguments, are null");
  if (flags != 0 || args->gex_flags != 0)
    return fail(Status::kBadArg, "flags are %#x, and %#llx in the arguments: both have to be 0",
                flags, static_cast<unsigned long long>(args->gex_flags));
  const unsigned kind_class = class_of(*args);
  if (kind_class == GEX_MK_CLASS_HOST)
    return fail(Status::kBadArg, "GEX_MK_CLASS_HOST has one kind, GEX_MK_HOST");
  const char* const name = device_class_name(kind_class);
  if (name == nullptr) return fail(Status::kBadArg, "%u is no class of memory kinds", kind_class);
  return fail(Status::kBadArg, "this version has no support for %s; use GEX_MK_HOST", name);
}

[[noreturn]] void refuse(gex_MK_t memkind, const char* call) noexcept {
  const char* what = "a value that is no memory kind";
  if (memkind == GEX_MK_HOST) what = "GEX_MK_HOST, which was not created";
  if (memkind == GEX_MK_INVALID) what = "GEX_MK_INVALID";
  fatal("%s: the argument is %s", call, what);
}

}  // namespace

extern "C" {

int gex_MK_Create(gex_MK_t* memkind_p, gex_Client_t client, const gex_MK_Create_args_t* args,
                  gex_Flags_t flags) {
  constexpr char kCall[] = "gex_MK_Create";
  if (!is_wired()) return report(fail(Status::kNotInit, "no client is initialised"), kCall);
  const InCall in_call(kCall, CallKind::kLocal);
  return report(create_kind(memkind_p, client, args, flags), kCall);
}

void gex_MK_Destroy(gex_MK_t memkind, gex_Flags_t) { refuse(memkind, "gex_MK_Destroy"); }

gex_MK_Class_t gex_MK_QueryClass(gex_MK_t memkind) {
  if (memkind != GEX_MK_HOST) refuse(memkind, "gex_MK_QueryClass");
  return GEX_MK_CLASS_HOST;
}
gex_Flags_t gex_MK_QueryFlags(gex_MK_t memkind) { refuse(memkind, "gex_MK_QueryFlags"); }
gex_Client_t gex_MK_QueryClient(gex_MK_t memkind) { refuse(memkind, "gex_MK_QueryClient"); }
void* gex_MK_QueryCData(gex_MK_t memkind) { refuse(memkind, "gex_MK_QueryCData"); }
void gex_MK_SetCData(gex_MK_t memkind, const void*) { refuse(memkind, "gex_MK_SetCData"); }

}  // extern "C"
