// `anyorder-prep encode`: texts to token ids, for programs that may not link SentencePiece
// themselves (data/prep/README.md). `anyorder generate` starts it. Texts are cleaned and encoded as
// a corpus is.

#pragma once

namespace anyorder::launcher {

// The program's main() where its first argument is `encode`: argv[0] is then that word. --input is
// a .jsonl whose objects have a field `text`; --output gets one line for each: its ids, separated
// by spaces. Returns the exit status.
int EncodeMain(int argc, char** argv);

}  // namespace anyorder::launcher
