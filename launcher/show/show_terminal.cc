#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "launcher/process/display_width.h"
#include "launcher/show/show.h"

namespace anyorder::launcher {
namespace {

constexpr int kTokenWidth = 9;
constexpr int kLabelWidth = 3 + 1 + kTokenWidth + 1 + 4 + 2;  // slot, token, limit

struct Glyphs {
  const char* sees;
  const char* self;
  const char* memory;
  const char* hidden;
  const char* bar;
  const char* arrow;
  const char* at_most;
};
constexpr Glyphs kUnicode = {"█", "▓", "▒", "·", "│", "→", "≤"};
constexpr Glyphs kAscii = {"#", "o", "m", ".", "|", "->", "<="};

class TerminalDrawing {
 public:
  TerminalDrawing(const Scene& scene, const PictureStyle& style)
      : scene_(scene), style_(style), glyphs_(style.ascii ? kAscii : kUnicode) {
    const auto keys = std::ssize(scene.keys);
    cell_ = kLabelWidth + 2 * keys + 4 <= style.columns ? 2 : 1;
  }

  std::string Draw() {
    Line(scene_.Title());
    Line(scene_.Subtitle());
    const std::string order = scene_.Order(absl::StrCat(" ", glyphs_.arrow, " "));
    if (!order.empty()) Wrapped(absl::StrCat("order of slots: ", order));
    if (style_.content) Matrix("content stream", scene_.content);
    if (style_.queries && !scene_.queries.empty()) Matrix("query stream", scene_.queries);
    Told();
    return text_;
  }

  // What the glyphs mean.
  std::string Legend() {
    text_.clear();
    Line("");
    Wrapped(absl::StrCat(Repeat(glyphs_.sees), " sees, ", Repeat(glyphs_.self), " sees itself, ",
                         Repeat(glyphs_.memory), " sees memory, ", glyphs_.hidden,
                         " does not see, ", glyphs_.arrow, " is trained to predict."));
    Wrapped(absl::StrCat("Rows attend to columns: a row sees every slot whose rank is ",
                         glyphs_.at_most, " its limit, the number before it."));
    if (!scene_.queries.empty()) {
      Wrapped(
          "A content row carries the token of its slot; a query row knows where it stands but not "
          "which token is there.");
    }
    if (scene_.num_unused_queries > 0) {
      Wrapped(absl::StrCat(scene_.num_unused_queries,
                           " more query row(s) hold no target: what was chosen there is no word."));
    }
    return text_;
  }

 private:
  // Without the blanks at its end.
  void Line(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text_, line, "\n");
  }

  void Wrapped(const std::string& words) {
    Line(launcher::Wrapped(words, "", style_.columns, "  "));
  }

  std::string Repeat(const char* glyph) const {
    std::string cell;
    for (int i = 0; i < cell_; ++i) cell += glyph;
    return cell;
  }

  // One cell for each key, with bars where blocks begin.
  std::string Cells(auto cell_of) const {
    std::string cells;
    for (size_t k = 0; k < scene_.keys.size(); ++k) {
      if (scene_.StartsBlock(k)) cells += glyphs_.bar;
      cells += cell_of(scene_.keys[k]);
    }
    return cells;
  }

  // Numbers of the columns, upright: the last digit in the last line, after `name`.
  void UprightNumbers(const char* name, auto number_of) {
    size_t digits = 1;
    for (const ShownSlot& key : scene_.keys) digits = std::max(digits, number_of(key).size());
    for (size_t line = 0; line < digits; ++line) {
      const char* const label = line + 1 == digits ? name : "";
      Line(absl::StrFormat("%*s  ", kLabelWidth - 2, label) + Cells([&](const ShownSlot& key) {
             const std::string number =
                 absl::StrFormat("%*s", static_cast<int>(digits), number_of(key));
             return absl::StrFormat("%*c", cell_, number[line]);
           }));
    }
  }

  // Names of the parts over their first slots, as far as they fit.
  void PartNames(const char* stream) {
    std::string line = PaddedToWidth(stream, kLabelWidth);
    size_t k = 0;
    const auto add = [&](const std::string& name, int64_t slots) {
      const std::string bar = scene_.StartsBlock(k) ? glyphs_.bar : "";
      const int64_t width = slots * cell_;
      line += bar + PaddedToWidth(PaddedToWidth(name, width > 1 ? width - 1 : 1), width);
      k += static_cast<size_t>(slots);
    };
    if (scene_.batch.shape.memory_rows > 0) add("memory", scene_.batch.shape.memory_rows);
    if (scene_.parts.empty()) add("text", scene_.batch.shape.content_rows);
    for (const ShownSection& part : scene_.parts) add(part.name, part.end - part.begin);
    if (scene_.batch.shape.query_is_key) add("queries", std::ssize(scene_.queries));
    Line(line);
  }

  std::string CellOf(const ShownSlot& row, const ShownSlot& key) const {
    if (!scene_.Sees(row, key)) return absl::StrCat(std::string(cell_ - 1, ' '), glyphs_.hidden);
    if (key.kind == SlotKind::kMemory) return Repeat(glyphs_.memory);
    return Repeat(scene_.IsSelf(row, key) ? glyphs_.self : glyphs_.sees);
  }

  void Matrix(const char* name, const std::vector<ShownSlot>& rows) {
    Line("");
    PartNames(name);
    UprightNumbers("slot", [](const ShownSlot& key) { return absl::StrCat(key.pos); });
    UprightNumbers("rank", Scene::RankText);
    for (const ShownSlot& row : rows) {
      std::string line =
          absl::StrFormat("%3d %s %4d  ", row.pos, PaddedToWidth(row.token, kTokenWidth), row.rank);
      line += Cells([&](const ShownSlot& key) { return CellOf(row, key); });
      if (row.label) absl::StrAppend(&line, " ", glyphs_.arrow, " ", *row.label);
      Line(line);
    }
  }

  void Told() {
    if (style_.row >= 0 || style_.every_row) Line("");
    for (const auto* rows : {&scene_.content, &scene_.queries}) {
      const bool is_query = rows == &scene_.queries;
      if (is_query ? !style_.queries : !style_.content) continue;
      for (const ShownSlot& row : *rows) {
        if (!style_.DrawsArrowsTo(row)) continue;
        std::string line = absl::StrCat(
            "slot ", row.pos, " '", row.token,
            is_query ? "' through the query stream sees" : "' through the content stream sees");
        const size_t before = line.size();
        int64_t memory = 0;
        for (const ShownSlot& key : scene_.keys) {
          if (!scene_.Sees(row, key)) continue;
          if (key.kind == SlotKind::kMemory) {
            ++memory;
          } else {
            absl::StrAppend(&line, " ", key.pos,
                            key.token.empty() ? "?" : absl::StrCat(":", key.token));
          }
        }
        const char* joint = line.size() == before ? " " : " and ";
        if (memory > 0) absl::StrAppend(&line, joint, memory, " of memory");
        Wrapped(line.size() == before ? line + " nothing" : line);
      }
    }
  }

  const Scene& scene_;
  const PictureStyle& style_;
  const Glyphs& glyphs_;
  int cell_ = 2;
  std::string text_;
};

}  // namespace

std::string TerminalPicture(const std::vector<Scene>& scenes, const PictureStyle& style) {
  std::string text;
  for (const Scene& scene : scenes)
    absl::StrAppend(&text, text.empty() ? "" : "\n", TerminalDrawing(scene, style).Draw());
  return text + TerminalDrawing(scenes.back(), style).Legend();
}

}  // namespace anyorder::launcher
