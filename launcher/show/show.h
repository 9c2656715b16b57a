// `anyorder show`: a picture of what an objective lets each stream see. What there is to draw of
// one lane at one step, a scene, is its slots, and which rows see which keys; both kinds of picture
// are made from this.
//
// The text sample is drawn by the trainer's Sampler, the lane is built by the objective itself, and
// every cell is asked from kernels::IsVisible, the definition that the attention kernels are tested
// against: no rule is written here a second time.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/objective/batch.h"
#include "core/objective/text_sample.h"
#include "core/train/run/run_config.h"

namespace anyorder::launcher {

struct ShowOptions {
  std::string objective;  // registry name or alias; empty: the configuration's
  int64_t length = -1;    // slots; -1: 16, or what the configuration says
  int64_t memory = -1;  // memory slots; -1: scaled with the length, or what the configuration says
  int64_t seed = -1;    // -1: the configuration's
  int64_t lane = 0;
  int64_t step = -1;  // -1: the first at which the memory is full
  int64_t layer = 0;  // whose attention_windows are drawn, where there are some
  int64_t head = 0;
  int64_t row = -1;                    // slot whose attention is drawn with arrows, too; -1: none,
                                       // of `orders` every slot
  std::vector<std::string> orders;     // "3,2,4,1": instead of a sample, a picture for each
  std::string config;                  // TOML file; empty: the published XLNet setting
  std::string run_dir;                 // or: the frozen configuration of this run
  std::vector<std::string> overrides;  // "section.key=value", after scaling
  std::string text;                    // words to label slots with; empty: a text of our own
  bool tokens = false;                 // label slots x1, x2, ... instead
  std::string stream = "both";         // content, query or both
  std::string output;                  // FILE.svg; empty: the terminal
  bool ascii = false;                  // for terminals without Unicode
  bool list = false;                   // no picture: the names of all objectives
  std::string mask;                    // no picture: the ranks of the mask in this file
  std::string trace;                   // instead of an objective: how the texts of this file were
                                       // written (launcher/texts/trace_file.h)
  int64_t trace_text = 1;              // which of them, from 1
  bool colours = false;                // the terminal's alone
};

// The picture: an SVG document if options.output is named, else text. Nothing is written.
// Errors: InvalidArgument (options, configuration), NotFound (files), DataLoss (traces).
absl::StatusOr<std::string> Picture(const ShowOptions& options, int64_t terminal_columns);

// Prints the list or the picture, or writes it to options.output, which may replace only a picture.
// AlreadyExists otherwise.
absl::Status Show(const ShowOptions& options);

// The ranks that give the mask that somebody drew in a file, as text: two lines, "lim" of each row
// and "key" of each key (- where nobody sees it). A line of the file is a row: 1 for a key that it
// sees, 0 or . for one that it does not, spaces between them or not; lines without any are passed
// over, and what follows a #. Errors: NotFound and the like; FailedPrecondition for a file that is
// no mask, and for a mask without ranks, whose rows it names.
absl::StatusOr<std::string> RanksOfMaskFile(const std::string& path);

// Makes sampling.seq_len `length` and keeps its proportions: reuse_len is half of it; one token in
// as many is predicted as before (at least one); perm_size becomes the largest divisor of the half
// that is no larger than its share; mem_len keeps its share; max_span is at most a half. mask_alpha
// and mask_beta are proportions already.
void ScaleToLength(int64_t length, RunConfig& config);

// Reads, scales (if a length is named, or no configuration is), overrides, and resolves aliases of
// objectives. Of `orders` the first counts here and in MakeScene.
absl::StatusOr<RunConfig> ShowConfig(const ShowOptions& options);

enum class SlotKind { kMemory, kContent, kQuery };

struct ShownSlot {
  SlotKind kind = SlotKind::kContent;
  int64_t index = 0;  // row of the batch, or key
  int32_t pos = 0;    // of the batch, from Scene::first_slot on
  int32_t rank = 0;   // keys: key rank, or kKeyNever; rows: the largest key rank that the row sees
  std::string token;  // "" for memory
  std::optional<std::string> label;  // rows that are read out: what they are to predict
};

// Content slots [begin, end): "reuse", "A", "SEP", ...
struct ShownSection {
  int64_t begin = 0;
  int64_t end = 0;
  std::string name;
};

struct Scene {
  explicit Scene(const BatchShape& shape) : batch(shape) {}

  Batch batch;  // one lane
  TextSample sample;
  std::string objective;
  kernels::Band band;  // of the layer and head that are shown
  std::string window;  // "window 4:4 of layer 0, head 0"; "" where nothing is limited
  uint64_t seed = 0;
  bool is_order = false;            // of ShowOptions::orders
  int32_t first_slot = 0;           // what the text's first slot is called: 1 in such an order
  std::vector<ShownSlot> keys;      // memory, content slots, query slots if they are keys
  std::vector<ShownSlot> content;   // rows
  std::vector<ShownSlot> queries;   // rows, without those that hold no target in this sample
  std::vector<ShownSection> parts;  // of the content slots; empty if the text is one piece
  int64_t num_unused_queries = 0;
  int64_t num_targets = 0;

  bool Sees(const ShownSlot& row, const ShownSlot& key) const;
  // A key's rank; "" where there is none: memory, and what is seen by its group alone.
  static std::string RankText(const ShownSlot& key);
  // "rank 1 <= 2": which clause of the predicate lets `row` see `key`. REQUIRES Sees(row, key).
  std::string Why(const ShownSlot& row, const ShownSlot& key) const;
  // Whether keys[k] is the slot that `row` stands at.
  bool IsSelf(const ShownSlot& row, const ShownSlot& key) const {
    return key.kind == row.kind && key.pos == row.pos &&
           key.index - batch.shape.memory_rows == row.index;
  }
  // Whether the first part is what the next step remembers, so that the text has halves.
  bool HasReusePart() const { return parts.size() > 1 && parts[0].name == "reuse"; }
  // Whether a thin line goes before keys[k]: where memory ends and where the second half begins.
  bool StartsBlock(size_t k) const;
  // Slot numbers in the order of their ranks, "0 2 3 > 1": equal ranks side by side, then `arrow`.
  // "" for left to right, unless it was given.
  std::string Order(const std::string& arrow) const;
  // "permutation_lm", then its sizes, then where the sample comes from.
  std::string Title() const;
  std::string Subtitle() const;
};

// Errors: those of the objective and of the sampler; InvalidArgument for a lane that does not
// exist.
absl::StatusOr<Scene> MakeScene(const RunConfig& config, const ShowOptions& options);

struct PictureStyle {
  bool content = true;  // which streams
  bool queries = true;
  int64_t row = -1;  // slot whose attention is drawn with arrows, or told in words, too; -1: none
  bool every_row = false;  // of all slots, in one drawing for each stream
  bool ascii = false;      // the terminal's alone
  int64_t columns = 80;

  bool DrawsArrowsTo(const ShownSlot& slot) const { return every_row || slot.pos == row; }
};

// As text: one matrix per stream, two characters a cell (one where the terminal is too narrow for
// that). Scenes come one below the other.
std::string TerminalPicture(const std::vector<Scene>& scenes, const PictureStyle& style);

// As one SVG document: self-contained, for light and dark pages, with a tooltip on every cell. Up
// to 64 slots each visible pair is a <rect> of its own; beyond that, neighbours in a row share one.
// Scenes come two in a row.
std::string SvgPicture(const std::vector<Scene>& scenes, const PictureStyle& style);

}  // namespace anyorder::launcher
