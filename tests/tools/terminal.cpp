#include "tools/terminal.hpp"

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.hpp"
#include "support/places.hpp"

namespace kiln::test {

TerminalRun run_on_terminal(int columns, const Arguments& arguments, const Environment& environment,
                            const std::string& typed) {
  std::vector<std::string> settings{"TERM=xterm"};
  for (const auto& [name, value] : environment) settings.push_back(name + '=' + value);
  std::vector<char*> argv{const_cast<char*>(places::kCommand)}, envp;
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  for (const std::string& s : settings) envp.push_back(const_cast<char*>(s.c_str()));
  argv.push_back(nullptr), envp.push_back(nullptr);
  winsize size{};
  size.ws_row = 50, size.ws_col = static_cast<unsigned short>(columns);
  int terminal = -1;
  const pid_t pid = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (pid == 0) {
    ::execve(places::kCommand, argv.data(), envp.data());
    ::_exit(127);
  }
  TerminalRun out;
  if (::write(terminal, typed.data(), typed.size()) != static_cast<ssize_t>(typed.size())) return out;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(terminal, buffer, sizeof buffer)) > 0;)
    out.screen.append(buffer, static_cast<std::size_t>(got));
  ::close(terminal);
  int status = 0;
  ::waitpid(pid, &status, 0);
  out.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return out;
}

std::vector<std::string> visible_lines(const std::string& screen) {
  std::vector<std::string> lines(1);
  for (std::size_t i = 0; i < screen.size(); ++i) {
    if (screen[i] == '\033') {
      while (i < screen.size() && !std::isalpha(static_cast<unsigned char>(screen[i]))) ++i;
    } else if (screen[i] == '\n') {
      lines.emplace_back();
    } else if (screen[i] == '\r') {
      if (i + 1 < screen.size() && screen[i + 1] != '\n' && screen[i + 1] != '\r') lines.back().clear();
    } else {
      lines.back() += screen[i];
    }
  }
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

}  // namespace kiln::test
