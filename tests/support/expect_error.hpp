// Assertions on kiln::Error: its code, and pieces that its message must contain.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <string>

#include "kiln/error.hpp"

namespace kiln {

/// Returns the message for further checks. Fails the test when nothing is thrown or a piece is missing.
inline std::string expect_error(Errc code, std::initializer_list<std::string> pieces,
                                const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    const std::string message = error.what();
    for (const std::string& piece : pieces) {
      EXPECT_NE(message.find(piece), std::string::npos) << "no \"" << piece << "\" in: " << message;
    }
    return message;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace kiln
