"""Writes lines of many kinds to a file, each followed by what Python makes of it as data/prep/cleaning.h says, cased and uncased.

Only characters that Unicode had in version 3.2, so that no version of Python knows more of them than the library does.
"""
import random
import sys
import unicodedata

SIGMA = "\u03a3"
OLD = unicodedata.ucd_3_2_0
KNOWN = [chr(c) for c in range(1, 0x110000) if OLD.category(chr(c)) not in ("Cn", "Cs", "Co") and chr(c) not in "\n\r"]
SIGMAS = list(SIGMA * 8 + "\u0391\u0393\u03b1.:'\u2019\u2018\u00b7\u2027\u00ad\u200d\u0345\u02b0^`123- \t")
MARKED = [
    # Sigmas at the end of words and elsewhere.
    "\u0391.\u03a3. 123", "\u0391\u03a3:\u0393", "\u03a3", "A\u03a3", "A\u03a3'", "A\u03a3'b", "'\u03a3", "1\u03a3", "\u039f\u03a3 \u03a3\u039f",
    # White space of every kind; a zero-width space is none.
    "  a \t b\r", "a\v\f\x1c\x1d\x1e\x1fb", "a\x85\xa0\u1680b", "\u2003a\u2028\u2029\u202f\u205f\u3000b", " \t\xa0 ", "a\u200bb",
    # Doubled quotes become one from the left; those that come out of a decomposition stay.
    "``a''", "'''", "''''", "'`'`", "' '", "don't", "\uff07\uff07",
    # Accents, composed or not, or alone; compatibility forms; a stroke and spacing marks stay.
    "caf\xe9", "cafe\u0301", "\u0301", "\ufb01ne", "x\xb2", "\xd8", "\uac00", "\u0915\u093e\u094d", "AbC \xc9T\xc9 \u0416"]


def clean(line):
    line = " ".join(line.split()).replace("``", '"').replace("''", '"')
    return "".join(c for c in unicodedata.normalize("NFKD", line) if not unicodedata.combining(c))


def make_line(draw):
    kind = draw.random()
    length = draw.randint(1, 12)
    if kind < 0.5:
        return "".join(draw.choice(SIGMAS) for _ in range(length))
    if kind < 0.8:  # around a sigma, any characters
        return "".join(draw.choice(KNOWN) if draw.random() < 0.4 else draw.choice(SIGMAS) for _ in range(length))
    return "".join(draw.choice(KNOWN) for _ in range(length))


def main():
    draw = random.Random(1)
    lines = MARKED + [make_line(draw) for _ in range(20_000)]
    # Every known character before a sigma, behind it, and between two letters.
    lines += ["A" + c + SIGMA + " " + c + SIGMA + " A" + SIGMA + c + "B A" + SIGMA + c for c in KNOWN if ord(c) < 0x3000]
    with open(sys.argv[1], "w", encoding="utf-8", newline="") as out:
        for line in lines:
            out.write(f"{line}\n{clean(line)}\n{clean(line).lower()}\n")


main()
