// hydrant-info's notes on values that a job does not accept, of variables with grammars of their own:
// GASNet's names, and knobs that are texts.
#pragma once

#include "am/tools/numbers.hpp"
#include "am/tools/signal_names.hpp"
#include "rdma/injected/injected_settings.hpp"

#include <algorithm>
#include <string>
#include <string_view>

namespace hydrant::info {

// The names in a list of signals that name no signal; "" if there are none.
inline std::string find_no_signals(std::string_view list) {
  std::string wrong;
  while (list != "*" && !list.empty()) {
    const std::string name(list.substr(0, list.find(',')));
    list.remove_prefix(std::min(list.size(), name.size() + 1));
    if (name.empty() || signal_of_name(name.c_str()) != 0) continue;
    wrong += (wrong.empty() ? "\"" : ", \"") + name + "\"";
  }
  return wrong;
}

// The reason why a value that is not empty is refused, ignored or means something else; "" if it is accepted.
inline std::string setting_note(std::string_view name, const char* text) {
  for (const char* yes_or_no : {"GASNET_FREEZE", "GASNET_FREEZE_ON_ERROR", "GASNET_BACKTRACE",
                                "GASNET_BACKTRACE_MT", "GASNET_TSC_VERBOSE", "GASNET_VERBOSEENV"}) {
    if (name == yes_or_no && parse_switch(text) < 0)
      return "invalid value, and the default is used: set y or n";
  }
  for (const char* signal : {"GASNET_BACKTRACE_SIGNAL", "GASNET_FREEZE_SIGNAL"}) {
    if (name == signal && signal_of_name(text) == 0)
      return "no signal, and ignored: set, for example, SIGUSR1";
  }
  if (name == "GASNET_NO_CATCH_SIGNAL") {
    const std::string wrong = find_no_signals(text);
    if (!wrong.empty())
      return wrong + " is no signal and ignored: set names or numbers such as SIGSEGV or 11";
  }
  Injection injection;
  if (name == "HYDRANT_INJECT" && parse_injection(text, &injection) != Status::kOk)
    return std::string(last_error_text()) + "; init fails";
  const std::string_view value = text;
  if (name == "HYDRANT_STATS" &&
      (!(value.starts_with("json:") || value.starts_with("table:")) || value.ends_with(':')))
    return "invalid value, nothing is written: set json:FILE or table:FILE, with %r for the rank";
  return "";
}

}  // namespace hydrant::info
