// The interface between libhydrant and libhydrant_injected, which libhydrant loads when HYDRANT_INJECT is
// set. Both are built together; the version in the symbol's name and in the table detects different builds.
//
// The object has a copy of the base's code but not its state: error texts are stored in libhydrant.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/injected/injected_settings.hpp"
#include "rdma/transport/transport.hpp"

#include <cstdint>
#include <memory>
#include <string_view>

namespace hydrant {

inline constexpr const char* kInjectedObjectSymbol = "hydrant_injected_2";

// The library's functions of status.hpp, with formatted texts.
struct InjectionHost {
  Status (*fail)(Status status, const char* text) noexcept;
  Status (*add_context)(Status status, const char* text) noexcept;
  const char* (*last_error_text)() noexcept;
};

struct InjectedObject {
  const char* version;  // of the project
  void (*set_host)(const InjectionHost& host) noexcept;
  // parse_injection()
  Status (*parse)(std::string_view text, Injection* injection) noexcept;
  // Wraps *transport in the injected layers. Collective over the job. Errors: kResource.
  Status (*inject)(const Injection& injection, Bootstrap& bootstrap,
                   std::unique_ptr<Transport>* transport) noexcept;
};

// The function for InjectedObject::set_host, in an object that contains injected_host.cpp.
void set_injection_host(const InjectionHost& host) noexcept;

}  // namespace hydrant
