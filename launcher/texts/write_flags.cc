#include "launcher/texts/write_flags.h"

#include <algorithm>

#include "absl/strings/str_join.h"

#include "core/base/status.h"
#include "launcher/process/command_line.h"

namespace anyorder::launcher {

void AddWriteFlags(CLI::App* command, WriteFlags& flags) {
  AddChoice(command, "--method", flags.method, EnumNameList<WriteMethod>(),
            "how the text is written (default: the first that the model has learned)");
  // The help begins with the methods that an option acts on.
  auto add = [add = FieldFlags(command)](const char* key, auto& value, const char* help,
                                         const FieldBounds& bounds,
                                         const WriteMethods& methods = {}) {
    const std::string scope = methods.empty() ? "" : NamesOf(methods) + ": ";
    add(key, value, scope + help, bounds);
  };
  WriteOptions::VisitFields(flags.write, add);
}

absl::StatusOr<WriteOptions> OptionsOf(const WriteFlags& flags, const ModelFacts& facts) {
  WriteOptions options = flags.write;
  const std::string& wanted = flags.method.empty() ? facts.methods.front() : flags.method;
  if (std::find(facts.methods.begin(), facts.methods.end(), wanted) == facts.methods.end()) {
    return InvalidArgument("method \"", wanted,
                           "\" does not fit what this model has learned; choose ",
                           absl::StrJoin(facts.methods, ", "));
  }
  ParseEnum(wanted, options.method);
  RETURN_IF_ERROR(options.Validate());
  return options;
}

ModelFacts FactsForFilling(ModelFacts facts) {
  const std::string left_to_right = EnumName(WriteMethod::kLeftToRight);
  if (facts.methods.size() > 1) std::erase(facts.methods, left_to_right);
  return facts;
}

}  // namespace anyorder::launcher
