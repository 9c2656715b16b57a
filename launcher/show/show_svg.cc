#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/unicode.h"
#include "launcher/show/show.h"
#include "launcher/show/svg_document.h"

namespace anyorder::launcher {
namespace {

constexpr size_t kMostSlotsWithOwnCells = 64;
constexpr double kMargin = 28;
constexpr double kLabels = 158;   // left of a matrix: slot, token, limit
constexpr double kReadout = 128;  // right of it: what is predicted
constexpr double kArrowPanel = 128;

// Colours by class, so that a dark page changes them all in one place.
constexpr char kStyle[] = R"(<style>
text{font-family:ui-sans-serif,system-ui,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1e293b}
.bg{fill:#ffffff}.dim{fill:#64748b}.h{font-weight:600}.tiny{fill:#94a3b8}
.empty{fill:#f1f5f9}.line{stroke:#ffffff}.block{stroke:#475569}.mark{stroke:#cbd5e1}
.m{fill:#a8b5c7}.c{fill:#4f8df7}.cs{fill:#1d4fc4}.q{fill:#f5a524}.qs{fill:#c2700a}
.target{fill:#c2410c;font-weight:600}.off{fill:#ffffff;stroke:#cbd5e1}
.me{fill:none;stroke:#94a3b8}.ce{fill:none;stroke:#4f8df7}.qe{fill:none;stroke:#f5a524}
.on{fill:#ffffff;font-weight:600}
@media (prefers-color-scheme:dark){
text{fill:#e2e8f0}.bg{fill:#0f172a}.dim{fill:#94a3b8}.tiny{fill:#64748b}
.empty{fill:#1e293b}.line{stroke:#0f172a}.block{stroke:#94a3b8}.mark{stroke:#334155}
.m{fill:#64748b}.c{fill:#3b7ff0}.cs{fill:#9cc2ff}.q{fill:#e59413}.qs{fill:#ffd591}
.target{fill:#fdba74}.off{fill:#0f172a;stroke:#475569}
.me{stroke:#64748b}.ce{stroke:#3b7ff0}.qe{stroke:#e59413}.on{fill:#0f172a}}
</style>
)";

// At most `most` code points, so that long words stay in their column.
std::string Shortened(const std::string& word, size_t most) {
  size_t count = 0;
  size_t kept = 0;  // bytes of all but one of them
  for (size_t at = 0; at < word.size();) {
    NextCodePoint(word, at);
    if (++count == most - 1) kept = at;
  }
  return count > most ? word.substr(0, kept) + "…" : word;
}

class Drawing {
 public:
  Drawing(const Scene& scene, const PictureStyle& style)
      : scene_(scene),
        style_(style),
        own_cells_(scene.content.size() <= kMostSlotsWithOwnCells),
        cell_(CellSize(scene.content.size())),
        labels_(cell_ >= 9) {
    width_ = 2 * kMargin + kLabels + kReadout + cell_ * static_cast<double>(scene.keys.size());
  }

  double width() const { return width_; }
  double height() const { return y_; }

  std::string Draw() {
    y_ = kMargin + 16;
    Text(kMargin, y_, 20, "h", scene_.Title());
    y_ += 20;
    Text(kMargin, y_, 13, "dim", scene_.Subtitle());
    DrawOrder();
    y_ += 14;
    if (style_.content) Matrix("Content stream", scene_.content, "c");
    if (draws_queries()) Matrix("Query stream", scene_.queries, "q");
    ArrowPanels();
    return std::move(body_);
  }

  // What the colours mean, below a drawing that ends at `y`.
  std::string Legend(double y) {
    y_ = y;
    body_.clear();
    LegendKeys();
    LegendWords();
    y_ += kMargin - 10;
    return std::move(body_);
  }

 private:
  static double CellSize(size_t slots) {
    if (slots <= 24) return 24;
    if (slots <= 40) return 18;
    if (slots <= 64) return 13;
    return std::max(1.5, std::floor(20 * 760.0 / static_cast<double>(slots)) / 20);
  }

  bool draws_queries() const { return style_.queries && !scene_.queries.empty(); }
  double LabelSize() const { return cell_ >= 18 ? 12 : 9; }
  double KeyX(size_t k) const { return kMargin + kLabels + cell_ * static_cast<double>(k); }
  double KeyCentre(size_t k) const { return KeyX(k) + cell_ / 2; }
  double KeysEnd() const { return KeyX(scene_.keys.size()); }

  // `anchor`: where in the words x is, unless it is their start: kMiddle, kEnd.
  static constexpr char kMiddle[] = " text-anchor=\"middle\"";
  static constexpr char kEnd[] = " text-anchor=\"end\"";
  void Text(double x, double y, double size, const char* css, absl::string_view content,
            const char* anchor = "") {
    body_ += SvgText(x, y, size, css, content, anchor);
  }
  // Read upwards, in a column around x.
  void Upright(double x, double y, double size, const char* css, absl::string_view content,
               const char* anchor = "") {
    absl::StrAppend(&body_, "<text transform=\"translate(", SvgNumber(x + size / 3), " ",
                    SvgNumber(y), ") rotate(-90)\"", anchor, " font-size=\"", SvgNumber(size),
                    "\" class=\"", css, "\">", XmlEscaped(content), "</text>\n");
  }

  void Line(double x0, double y0, double x1, double y1, const char* css, double width) {
    absl::StrAppend(&body_, "<path class=\"", css, "\" stroke-width=\"", SvgNumber(width),
                    "\" d=\"M", SvgNumber(x0), " ", SvgNumber(y0), "L", SvgNumber(x1), " ",
                    SvgNumber(y1), "\"/>\n");
  }

  // The order that was drawn, where it fits a line or two.
  void DrawOrder() {
    const std::string order = scene_.Order(" → ");
    if (order.empty() || scene_.content.size() > 24) return;
    y_ += 22;
    Text(kMargin, y_, 13, "dim", absl::StrCat("Order of the slots:  ", order));
  }

  // The head of a matrix: parts, tokens, slot numbers, ranks.
  void Head(const char* name) {
    const double top = y_;
    Text(kMargin, top + 15, 15, "h", name);
    PartBrackets(top + 14);
    if (!labels_) {
      y_ = top + 26;
      return;
    }
    const double tokens = top + 84;
    for (size_t k = 0; k < scene_.keys.size(); ++k) {
      const ShownSlot& key = scene_.keys[k];
      const bool is_content = key.kind == SlotKind::kContent;
      Upright(KeyCentre(k), tokens, LabelSize(),
              IsTarget(key) ? "target"
              : is_content  ? "ink"
                            : "dim",
              key.kind == SlotKind::kMemory ? "·" : Shortened(key.token, 9));
    }
    Text(kMargin + kLabels - 8, tokens + 14, 11, "dim", "slot", kEnd);
    Text(kMargin + kLabels - 8, tokens + 28, 11, "dim", "rank", kEnd);
    for (size_t k = 0; k < scene_.keys.size(); ++k) {
      const ShownSlot& key = scene_.keys[k];
      const double size = cell_ >= 18 ? 11 : 7.5;
      Text(KeyCentre(k), tokens + 14, size, "dim", absl::StrCat(key.pos), kMiddle);
      if (key.kind == SlotKind::kContent)
        Text(KeyCentre(k), tokens + 28, size, "ink", Scene::RankText(key), kMiddle);
    }
    y_ = tokens + 36;
  }

  void PartBrackets(double y) {
    struct Span {
      size_t begin, end;
      std::string name;
    };
    std::vector<Span> spans;
    const auto memory = static_cast<size_t>(scene_.batch.shape.memory_rows);
    if (memory > 0) spans.push_back({0, memory, "memory"});
    for (const ShownSection& part : scene_.parts) {
      spans.push_back({memory + static_cast<size_t>(part.begin),
                       memory + static_cast<size_t>(part.end), part.name});
    }
    if (scene_.parts.empty()) spans.push_back({memory, memory + scene_.content.size(), "text"});
    for (const Span& span : spans) {
      const double x0 = KeyX(span.begin) + 2;
      const double x1 = KeyX(span.end) - 2;
      if (x1 - x0 < 1) continue;
      absl::StrAppend(&body_, "<path class=\"me\" d=\"M", SvgNumber(x0), " ", SvgNumber(y + 6),
                      "v-4H", SvgNumber(x1), "v4\"/>\n");
      const double size = x1 - x0 < 26 ? 9 : 12;
      if (x1 - x0 >= 18) Text((x0 + x1) / 2, y - 3, size, "dim", span.name, kMiddle);
    }
  }

  bool IsTarget(const ShownSlot& key) const {
    if (key.kind != SlotKind::kContent) return false;
    return std::any_of(scene_.queries.begin(), scene_.queries.end(), [&](const ShownSlot& row) {
      return row.label.has_value() && row.pos == key.pos;
    });
  }

  void Matrix(const char* name, const std::vector<ShownSlot>& rows, const std::string& css) {
    y_ += 22;
    Head(name);
    const double top = y_;
    const double bottom = top + cell_ * static_cast<double>(rows.size());
    absl::StrAppend(&body_, "<rect class=\"empty\" x=\"", SvgNumber(KeyX(0)), "\" y=\"",
                    SvgNumber(top), "\" width=\"", SvgNumber(KeysEnd() - KeyX(0)), "\" height=\"",
                    SvgNumber(bottom - top), "\"/>\n");
    for (size_t r = 0; r < rows.size(); ++r) {
      const double y = top + cell_ * static_cast<double>(r);
      if (labels_) RowLabels(rows[r], y);
      RowCells(rows[r], css, y);
    }
    if (labels_) Grid(top, bottom, rows.size());
    Blocks(top, bottom, rows);
    y_ = bottom + 6;
  }

  void RowLabels(const ShownSlot& row, double y) {
    const double base = y + cell_ / 2 + 4;
    const double size = LabelSize();
    const bool is_target = row.kind == SlotKind::kQuery && row.label.has_value();
    Text(kMargin + 18, base, size, "dim", absl::StrCat(row.pos), kEnd);
    Text(kMargin + 26, base, size, is_target ? "target" : "ink", Shortened(row.token, 10));
    Text(kMargin + kLabels - 8, base, size, "dim",
         row.rank < -1 ? "nothing" : absl::StrCat("≤ ", row.rank), kEnd);
    if (row.label) {
      Text(KeysEnd() + 10, base, size, is_target ? "target" : "dim",
           absl::StrCat("→ ", Shortened(*row.label, 14)));
    }
  }

  std::string CellClass(const ShownSlot& row, const ShownSlot& key, const std::string& css) const {
    if (key.kind == SlotKind::kMemory) return "m";
    return scene_.IsSelf(row, key) ? css + "s" : css;
  }

  // "row 5 (query, target 'York')"
  static std::string Named(const ShownSlot& row) {
    if (row.kind == SlotKind::kContent)
      return absl::StrCat("row ", row.pos, " (content, '", row.token, "')");
    return absl::StrCat("row ", row.pos, " (query, ",
                        row.label ? absl::StrCat("target '", *row.label, "'") : "no target", ")");
  }

  std::string Tooltip(const ShownSlot& row, size_t first, size_t end) const {
    const ShownSlot& key = scene_.keys[first];
    if (end - first > 1)
      return absl::StrCat(Named(row), " sees keys ", key.pos, " to ", scene_.keys[end - 1].pos);
    const std::string what = key.kind == SlotKind::kMemory  ? "memory key "
                             : key.kind == SlotKind::kQuery ? "query key "
                                                            : "key ";
    return absl::StrCat(Named(row), " sees ", what, key.pos,
                        key.token.empty() ? "" : absl::StrCat(" ('", key.token, "')"), " because ",
                        scene_.Why(row, key));
  }

  void RowCells(const ShownSlot& row, const std::string& css, double y) {
    for (size_t k = 0; k < scene_.keys.size();) {
      if (!scene_.Sees(row, scene_.keys[k])) {
        ++k;
        continue;
      }
      const std::string kind = CellClass(row, scene_.keys[k], css);
      size_t end = k + 1;
      while (!own_cells_ && end < scene_.keys.size() && scene_.Sees(row, scene_.keys[end]) &&
             CellClass(row, scene_.keys[end], css) == kind)
        ++end;
      absl::StrAppend(&body_, "<rect class=\"", kind, "\" x=\"", SvgNumber(KeyX(k)), "\" y=\"",
                      SvgNumber(y), "\" width=\"", SvgNumber(cell_ * static_cast<double>(end - k)),
                      "\" height=\"", SvgNumber(cell_), "\"><title>",
                      XmlEscaped(Tooltip(row, k, end)), "</title></rect>\n");
      k = end;
    }
  }

  // Gaps between cells, in the colour of the page.
  void Grid(double top, double bottom, size_t rows) {
    std::string path;
    for (size_t k = 0; k <= scene_.keys.size(); ++k)
      absl::StrAppend(&path, "M", SvgNumber(KeyX(k)), " ", SvgNumber(top), "V", SvgNumber(bottom));
    for (size_t r = 0; r <= rows; ++r) {
      const double y = top + cell_ * static_cast<double>(r);
      absl::StrAppend(&path, "M", SvgNumber(KeyX(0)), " ", SvgNumber(y), "H", SvgNumber(KeysEnd()));
    }
    absl::StrAppend(&body_, "<path class=\"line\" pointer-events=\"none\" stroke-width=\"",
                    cell_ >= 18 ? "2" : "1", "\" d=\"", path, "\"/>\n");
  }

  // Where memory ends and the second half begins, in columns and in rows.
  void Blocks(double top, double bottom, const std::vector<ShownSlot>& rows) {
    for (size_t k = 0; k < scene_.keys.size(); ++k)
      if (scene_.StartsBlock(k)) Line(KeyX(k), top - 4, KeyX(k), bottom + 4, "block", 1.5);
    if (!scene_.HasReusePart()) return;
    for (size_t r = 1; r < rows.size(); ++r) {
      const int64_t half = scene_.parts[1].begin;
      if (rows[r - 1].pos < half && rows[r].pos >= half) {
        const double y = top + cell_ * static_cast<double>(r);
        Line(KeyX(0) - 4, y, KeysEnd() + 4, y, "block", 1.5);
      }
    }
  }

  // The paper's other figure: rows above the slots, with an arrow from each slot that they see.
  void ArrowPanels() {
    for (const auto* rows : {&scene_.content, &scene_.queries}) {
      const bool is_query = rows == &scene_.queries;
      if (is_query ? !style_.queries : !style_.content) continue;
      const char* css = is_query ? "q" : "c";
      if (style_.every_row && !rows->empty()) ArrowPanel(*rows, css);
      for (const ShownSlot& row : *rows)
        if (row.pos == style_.row) ArrowPanel({row}, css);
    }
  }

  void ArrowPanel(const std::vector<ShownSlot>& rows, const std::string& css) {
    y_ += 34;
    const bool is_query = rows.front().kind == SlotKind::kQuery;
    Text(kMargin, y_, 15, "h",
         is_query ? "Through the query stream" : "Through the content stream");
    Text(kMargin, y_ + 18, 12, "dim",
         is_query ? "knows where it stands, not which token is there" : "carries its own token");
    // Tokens stand beside a node, or above it where there are others beside it.
    const double node = y_ + (rows.size() > 1 ? 88 : 44);
    const double slots = node + kArrowPanel;
    const double radius = std::min(11.0, cell_ * 0.42);
    for (const ShownSlot& row : rows) {
      ArrowsTo(row, node, slots - radius, css);
      const double x = NodeX(row);
      Circle(x, node, rows.size() > 1 ? radius : 13, css + "s", Tooltip(row));
      Text(x, node + 4, 12, "on", is_query ? "g" : "h", kMiddle);
      const std::string token = absl::StrCat(is_query ? "→ " : "", Shortened(row.token, 14));
      if (rows.size() == 1)
        Text(x + 20, node + 4, 13, is_query ? "target" : "ink", token);
      else
        Upright(x, node - radius - 6, 12, is_query ? "target" : "ink", token);
    }
    for (size_t k = 0; k < scene_.keys.size(); ++k) ArrowSlot(rows, k, slots, radius, css);
    y_ = slots + 70;
  }

  // Where the column of a row's own slot is.
  double NodeX(const ShownSlot& row) const {
    const auto own = std::ranges::find_if(scene_.keys, [&](const ShownSlot& key) {
      return key.kind == SlotKind::kContent && key.pos == row.pos;
    });
    ANYORDER_CHECK(own != scene_.keys.end()) << row.pos;
    return KeyCentre(static_cast<size_t>(own - scene_.keys.begin()));
  }

  // From `bottom` up to the row's node.
  void ArrowsTo(const ShownSlot& row, double node, double bottom, const std::string& css) {
    const double x = NodeX(row);
    for (size_t k = 0; k < scene_.keys.size(); ++k) {
      if (!scene_.Sees(row, scene_.keys[k])) continue;
      const double from = KeyCentre(k);
      absl::StrAppend(
          &body_, "<path class=\"", scene_.keys[k].kind == SlotKind::kMemory ? "me" : css + "e",
          "\" stroke-width=\"1.5\" d=\"M", SvgNumber(from), " ", SvgNumber(bottom), "C",
          SvgNumber(from), " ", SvgNumber(node + kArrowPanel - 62), " ", SvgNumber(x), " ",
          SvgNumber(node + 70), " ", SvgNumber(x), " ", SvgNumber(node + 13), "\"/>\n");
    }
  }

  static std::string Tooltip(const ShownSlot& row) {
    return absl::StrCat(Named(row), " sees ranks up to ", row.rank);
  }

  void Circle(double x, double y, double radius, const std::string& css, absl::string_view title) {
    absl::StrAppend(&body_, "<circle class=\"", css, "\" cx=\"", SvgNumber(x), "\" cy=\"",
                    SvgNumber(y), "\" r=\"", SvgNumber(radius), "\"><title>", XmlEscaped(title),
                    "</title></circle>\n");
  }

  void ArrowSlot(const std::vector<ShownSlot>& rows, size_t k, double y, double radius,
                 const std::string& css) {
    const ShownSlot& key = scene_.keys[k];
    // The first row that sees the slot stands for all.
    const auto seeing =
        std::ranges::find_if(rows, [&](auto& row) { return scene_.Sees(row, key); });
    const bool sees = seeing != rows.end();
    const ShownSlot& row = sees ? *seeing : rows.front();
    const bool is_one_of_several = rows.size() > 1 && key.kind != SlotKind::kMemory;
    const std::string seen = is_one_of_several ? css : CellClass(row, key, css);
    Circle(KeyCentre(k), y, radius, sees ? seen : "off",
           sees ? Tooltip(row, k, k + 1)
                : absl::StrCat(Named(row), " does not see key ", key.pos, ", rank ", key.rank));
    if (!labels_ || key.kind == SlotKind::kMemory) return;
    Upright(KeyCentre(k), y + radius + 6, LabelSize(),
            IsTarget(key) ? "target"
            : sees        ? "ink"
                          : "dim",
            Shortened(key.token, 9), kEnd);
  }

  void LegendKey(double& x, const char* css, absl::string_view words) {
    absl::StrAppend(&body_, "<path class=\"", css, "\" d=\"M", SvgNumber(x), " ",
                    SvgNumber(y_ - 11), "h13v13h-13z\"/>\n");
    Text(x + 19, y_, 12.5, "ink", words);
    x += 19 + 7.2 * static_cast<double>(words.size()) + 20;
  }

  void LegendKeys() {
    y_ += 34;
    double x = kMargin;
    if (style_.content) {
      LegendKey(x, "c", "content row sees");
      LegendKey(x, "cs", "its own slot");
    }
    if (draws_queries()) LegendKey(x, "q", "query row sees");
    if (scene_.batch.shape.memory_rows > 0) LegendKey(x, "m", "sees memory");
    LegendKey(x, "empty", "does not see");
  }

  void LegendWords() {
    std::vector<std::string> words = {
        "Rows attend to columns: a row sees every slot whose rank is at most its limit, the number "
        "(≤) beside it.",
    };
    if (draws_queries()) {
      words.emplace_back("Content rows carry the token of their slot.");
      words.emplace_back(
          "Query rows know where they stand but not which token is there; they predict it (→).");
    } else {
      words.emplace_back("→ is what a row is trained to predict.");
    }
    if (scene_.num_unused_queries > 0) {
      words.push_back(absl::StrCat(scene_.num_unused_queries,
                                   " more query rows hold no target in this sample."));
    }
    y_ += 6;
    for (const std::string& line : words) {
      y_ += 19;
      Text(kMargin, y_, 12.5, "dim", line);
    }
  }

  const Scene& scene_;
  const PictureStyle& style_;
  const bool own_cells_;
  const double cell_;
  const bool labels_;  // cells are large enough to write beside
  double width_ = 0;
  double y_ = 0;  // where the next thing is drawn
  std::string body_;
};

}  // namespace

std::string SvgPicture(const std::vector<Scene>& scenes, const PictureStyle& style) {
  constexpr double kLeastWidth = 720;  // of the legend
  std::string body;
  double width = kLeastWidth;
  double left = 0;
  double top = 0;
  double bottom = 0;
  for (size_t i = 0; i < scenes.size(); ++i) {
    Drawing drawing(scenes[i], style);
    const std::string drawn = drawing.Draw();
    const bool is_first = left == 0 && top == 0;
    absl::StrAppend(&body,
                    is_first ? ""
                             : absl::StrCat("<g transform=\"translate(", SvgNumber(left), " ",
                                            SvgNumber(top), ")\">\n"),
                    drawn, is_first ? "" : "</g>\n");
    width = std::max(width, left + drawing.width());
    bottom = std::max(bottom, top + drawing.height());
    const bool ends_line = i % 2 == 1;
    left = ends_line ? 0 : drawing.width();
    if (ends_line) top = bottom;
  }
  Drawing last(scenes.back(), style);
  absl::StrAppend(&body, last.Legend(bottom));
  const std::string title =
      scenes.size() == 1 ? scenes.front().Title() : absl::StrCat(scenes.size(), " orders");
  return SvgDocument(title, kStyle, width, last.height(), body);
}

}  // namespace anyorder::launcher
