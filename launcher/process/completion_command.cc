// `anyorder completion SHELL` and, for the build, `anyorder man DIR`.

#include <cstdio>
#include <memory>
#include <string>

#include "core/train/run/config_keys.h"
#include "launcher/process/command_line.h"
#include "launcher/process/completion.h"
#include "launcher/process/man_page.h"
#include "launcher/process/subcommand.h"

namespace anyorder::launcher {

Subcommand DeclareCompletion(CLI::App& front) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* command = AddCommand(
      front, "completion", "Print a shell's completion script.",
      {"source <(anyorder completion bash)", "anyorder completion zsh > ~/.zfunc/_anyorder"});
  AddChoice(command, "shell", *shell, {"bash", "zsh"}, "shell to print the script for")->required();
  return {command, [shell, &front] {
            const CommandText program = DescribeCommand(front);
            const std::string script = *shell == "bash" ? BashCompletion(program, ConfigKeys())
                                                        : ZshCompletion(program, ConfigKeys());
            std::fputs(script.c_str(), stdout);
            return Report(absl::OkStatus());
          }};
}

Subcommand DeclareManPages(CLI::App& front) {
  const auto directory = std::make_shared<std::string>();
  CLI::App* command =
      AddCommand(front, "man", "Write the manual pages of all commands.", {})->group("");
  AddPath(command, "directory", *directory, "directory to write them to")->required();
  return {command, [directory, &front] {
            return Report(WriteManPages(DescribeCommand(front), ANYORDER_VERSION, *directory));
          }};
}

}  // namespace anyorder::launcher
