// Derives the configuration of a domain from a client's options and the environment.
#pragma once

#include "firehose/cache/domain.hpp"
#include "firehose/registrars/registrar_factory.hpp"

#include <memory>

namespace hydrant {

// Copies the options of hydrant_domain_create() from a struct that may be older and smaller than ours.
// Errors: kBadArg with a text.
Status read_options(const hydrant_domain_options_t* given,
                    hydrant_domain_options_t* options) noexcept;

// Creates the registrar that the options or the environment request. Errors: kUnsupported, kBadArg, kBroken,
// kResource.
Status choose_registrar(const hydrant_domain_options_t& options, NamedRegistrar* out) noexcept;

// Resolves every default: the option, else the environment, else the machine.
// Errors: kBadArg.
Status make_config(const hydrant_domain_options_t& options, const RegistrarTraits& traits,
                   DomainConfig* config) noexcept;

}  // namespace hydrant
