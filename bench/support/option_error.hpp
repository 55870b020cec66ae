// The text of a wrong option, for CLI::App::failure_message().
#pragma once

#include <CLI/CLI.hpp>

#include <cerrno>
#include <string>

namespace hydrant::bench {

// "PROGRAM: " and CLI11's text.
inline std::string option_error(const CLI::App* app, const CLI::Error& error) {
  return std::string(program_invocation_short_name) + ": " +
         CLI::FailureMessage::simple(app, error);
}

}  // namespace hydrant::bench
