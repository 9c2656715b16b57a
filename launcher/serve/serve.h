// `anyorder serve` and `anyorder chat`, of any TextService: tests have one without a model.

#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "launcher/inference/text_model.h"
#include "launcher/process/command_line.h"
#include "launcher/texts/text_service.h"

namespace anyorder::launcher {

// What opens the model that a command line names.
using OpenService =
    absl::StatusOr<std::unique_ptr<TextService>> (*)(const TextModelOptions& options);
// The checkpoint of a run. Errors: those of ModelTextService::Open.
absl::StatusOr<std::unique_ptr<TextService>> OpenModel(const TextModelOptions& options);

// --chat-template, as ChatSession::Start takes it.
CLI::Option* AddChatTemplate(CLI::App* command, std::string& chat_template);

Subcommand DeclareServe(CLI::App& front, OpenService open);
Subcommand DeclareChat(CLI::App& front, OpenService open);

}  // namespace anyorder::launcher
