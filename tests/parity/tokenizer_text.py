"""Lines of text of many kinds, made from fixed seeds: {kind: [line, ...]}. None holds a line end, NUL or invalid UTF-8."""
import random
import unicodedata

WORDS = "the of and to in is was for on that with he as his it at from by this had not are but were which one year time " \
        "people state new city first world war music film game team school river north south house water light".split()
ACCENTED = "café naïve Ångström façade jalapeño Zürich Łódź œuvre Dvořák coöperate señor Čapek Việt Nam crème brûlée".split()
DECOMPOSED = ["cafe\u0301", "nai\u0308ve", "A\u030angstro\u0308m", "e\u0323\u0302", "n\u0303andu", "o\u0308\u0304", "q\u0307\u0323"]
CJK = ["日本語", "中文字", "漢字かな", "カタカナ", "한국어", "안녕하세요", "東京都", "ｶﾀｶﾅ", "㌔", "㍿", "\u1112\u1161\u11ab"]
OTHER = ["Ελλάδα", "привет", "Ёлка", "שלום", "שָׁלוֹם", "مرحبا", "مَرْحَبًا", "नमस्ते", "ไทย", "தமிழ்", "Straße", "ﬁne", "ﬃ", "Ǆ"]
EMOJI = ["😀", "👍🏽", "👨\u200d👩\u200d👧", "🇩🇪", "❤\ufe0f", "☃", "🏳\ufe0f\u200d🌈", "1\ufe0f\u20e3", "™", "©", "∑", "½", "№", "①", "𝔘", "x²"]
SPACES = ["  ", "   ", "\t", "\u00a0", "\u3000", "\u2003", "\u2009", "\u202f", " \u00a0 ", "\x0b", "\x0c", "\u1680", "\u205f"]
CONTROLS = ["\x01", "\x07", "\x08", "\x0e", "\x1b", "\x7f", "\x80", "\x84", "\x9f", "\u00ad", "\u200b", "\u200c", "\u200d", "\u200e",
            "\u2060", "\ufeff", "\ufffd", "\ue000", "\ufff9", "\U000e0041"]
SEPARATORS = ["\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\u2028", "\u2029"]  # white space to Python, not to Unicode's White_Space alike
QUOTES = ["``", "''", "```", "'''", "` `", "' '", "\"", "“", "”", "’", "‘", "«", "''''", "´", "`"]
SPECIAL = ["<s>", "</s>", "<unk>", "<sep>", "<pad>", "<cls>", "<mask>", "<eod>"]


def sentence(rng, extra=(), joiner=" "):
    words = [rng.choice(WORDS) for _ in range(rng.randint(3, 12))]
    for piece in extra:
        words.insert(rng.randint(0, len(words)), piece)
    text = joiner.join(words)
    return text if rng.random() < 0.4 else text.capitalize() + rng.choice([".", "?", "!", ",", ""])


def number(rng):
    value = rng.choice([rng.randint(0, 99), rng.randint(0, 9999), rng.randint(0, 10 ** 7)])
    text = f"{value:,}" if rng.random() < 0.6 else str(value)
    return rng.choice(["", "$", "(", "-", "x", "£"]) + text + rng.choice([",", ",", "", ",,", ".", "%", ",a", ", ", "s,"])


def glued(rng, pieces, text):
    """Puts one of `pieces` somewhere inside `text`, words and all."""
    at = rng.randint(0, len(text))
    return text[:at] + rng.choice(pieces) + text[at:]


def lines(count=400):
    """`count` lines of each kind."""
    makers = {
        "words": lambda r: sentence(r),
        "numbers": lambda r: sentence(r, [number(r) for _ in range(r.randint(1, 4))]),
        "other digits": lambda r: sentence(r, [r.choice(["٣٤،", "٣,", "९२,", "２０,", "１,０００,", "²,", "½,"])]),
        "quotes": lambda r: glued(r, QUOTES, glued(r, QUOTES, sentence(r))),
        "accents": lambda r: sentence(r, r.choices(ACCENTED, k=2)),
        "combining": lambda r: sentence(r, r.choices(DECOMPOSED, k=2)),
        "CJK": lambda r: glued(r, CJK, sentence(r, r.choices(CJK, k=2))),
        "scripts": lambda r: sentence(r, r.choices(OTHER, k=2)),
        "emoji and symbols": lambda r: glued(r, EMOJI, sentence(r, r.choices(EMOJI, k=2))),
        "spaces": lambda r: glued(r, SPACES, r.choice(SPACES) + sentence(r, joiner=r.choice(SPACES)) + r.choice(SPACES)),
        "separators": lambda r: glued(r, SEPARATORS, glued(r, SEPARATORS, sentence(r))),
        "control characters": lambda r: glued(r, CONTROLS, glued(r, CONTROLS, sentence(r))),
        "letter case": lambda r: sentence(r, r.choices(["İstanbul", "ISTANBUL", "ΔΕΛΤΑ", "ẞ", "Ǆ", "İİ", "McDonald", "ÄÖÜ", "ЁЛКА"], k=2)),
        "final sigma": lambda r: sentence(r, r.choices(["ΟΔΟΣ", "ΣΑΣ", "ΌΔΥΣΣΕΎΣ", "ΑΣ.", "ΑΣΒ"], k=2)),
        "paragraph ends": lambda r: sentence(r) + r.choice(["<eop>", " <eop>", "<eop> "]),
        "special pieces": lambda r: glued(r, SPECIAL, sentence(r)),
        "word marks": lambda r: glued(r, ["▁", "▁▁", " ▁ ", "_"], sentence(r)),
    }
    made = {}
    for seed, (kind, make) in enumerate(makers.items()):
        rng = random.Random(seed)
        made[kind] = [make(rng) for _ in range(count)]
    return made


def random_lines(count=2000):
    """Lines of characters of all scripts, between words."""
    rng = random.Random(11)
    breaks = set("\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029")  # end a line of a text file, or a document's
    every = [chr(code) for code in range(1, 0x30000) if unicodedata.category(chr(code)) not in ("Cs", "Cn", "Co")]
    every = [char for char in every if char not in breaks]
    latin = [char for char in every if char < "\u0250"]

    def part():
        kind = rng.random()
        if kind < 0.4:
            return rng.choice(every)
        return rng.choice(latin) if kind < 0.6 else rng.choice(WORDS) + rng.choice([" ", "", "<eop>"])

    return ["".join(part() for _ in range(rng.randint(1, 14))) for _ in range(count)]
