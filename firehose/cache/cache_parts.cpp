// Constructs the parts of a domain and passes each the parts that it uses. Domain contains the result.
#include "firehose/cache/cache_parts.hpp"

#include <utility>

namespace hydrant {

CacheParts::CacheParts(const DomainConfig& settings, std::unique_ptr<Registrar> its_registrar,
                       CachePolicies its_policies, uint64_t handle) noexcept
    : config(settings),
      registrar(std::move(its_registrar)),
      traits(registrar->traits()),
      policies(std::move(its_policies)),
      store(slots_for(config.max_regions), traits.key_bytes, traits.note_bytes),
      holds(store),
      free_slots(store, holds, epoch),
      gates(store, epoch, pending_ranges, checks),
      tables(store),
      extensions(store, totals, config.granule_bytes),
      victims(store, *policies.replacement),
      unpins(store),
      retirement({store, holds, epoch, gates, tables, extensions, victims, unpins}),
      budget({config.budget_bytes, config.max_regions}, config.granule_bytes),
      evictor({store, holds, epoch, gates, tables, retirement, budget, victims, totals},
              config.is_remote),
      pending(store),
      planner({config, store, tables, budget, evictor.working_set(), retirement, extensions}),
      limits(config, traits, mu, vouched),
      watch(config, checks),
      invalidator({mu, *registrar, store, tables, pending, begun, retirement, planner, totals,
                   pending_ranges}),
      unpinner({config.name, mu, *registrar, store, unpins, free_slots, budget, watch, invalidator,
                totals}),
      publisher({handle, store, holds, epoch, checks, gates, tables, extensions, retirement,
                 victims, totals, watch}),
      threads({config, handle, mu, store, holds, totals, watch, invalidator}),
      texts(config, traits, store.count()) {}

}  // namespace hydrant
