// Sets of ranks in settings: "0,2-4,6"; "*", "" and no text at all are everybody.
#pragma once

namespace hydrant {

// Texts that are no list contain nobody.
bool rank_list_contains(const char* list, int rank) noexcept;

}  // namespace hydrant
