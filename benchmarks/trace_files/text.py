"""Text from a seed that compresses as what agents read and write does."""

from __future__ import annotations

import itertools
import random

PHRASES = 220
PHRASES_SHARE = 0.4
LENGTH = 17.2
"""How many characters a word or phrase takes on average, with what stands between."""
_SYLLABLES = "ar be con de en fi gra ho in ju ka lo mi nu or pre qui ra si tor un ver wa xi yo za ment ing tion ous"


class Writer:
    """Writes words of which few are frequent, phrases that come again, numbers and quotes.

    zstd takes 45 KB of it to 0.23 of its size; source code comes to 0.24, prose to 0.4.

    Args:
        random: Where chance comes from; also that of the phrases, for each trajectory is about something else.
        has_symbols: Whether there are characters beyond ASCII.
    """

    words = tuple(
        "".join(parts)
        for count, every in ((1, 1), (2, 3), (3, 7))
        for parts in itertools.islice(itertools.product(_SYLLABLES.split(), repeat=count), 0, 9000, every)
    )
    weights = tuple(1 / (rank + 12) for rank in range(len(words)))
    summed_weights = tuple(itertools.accumulate(weights))

    def __init__(self, random: random.Random, *, has_symbols: bool) -> None:
        self.random = random
        self.has_symbols = has_symbols
        drawn = iter(random.choices(self.words, cum_weights=self.summed_weights, k=8 * PHRASES))
        phrases = [" ".join(itertools.islice(drawn, random.randrange(4, 9))) for _ in range(PHRASES)]
        self._parts = [*self.words, *phrases]

    def text(self, size: int) -> str:
        """Return about `size` characters, from half to one and a half times that."""
        count = int(size * self.random.uniform(0.5, 1.5) / LENGTH)
        words = self.random.choices(self._parts, cum_weights=_WEIGHTS, k=count)
        for place in range(9, count, 11):
            words[place] = f"{words[place]}.\n"
            words[place - 4] = f'"{words[place - 4]}"'
            words[place - 7] = str(self.random.randrange(1000))
        if self.has_symbols:
            words[::20] = ["≈ 7 °C — é"] * len(words[::20])
        return " ".join(words)


def _weights() -> list[float]:
    """Return how often each word and each phrase comes, added up."""
    phrases = Writer.weights[:PHRASES]
    share = PHRASES_SHARE / (1 - PHRASES_SHARE) * sum(Writer.weights) / sum(phrases)
    return list(itertools.accumulate([*Writer.weights, *(weight * share for weight in phrases)]))


_WEIGHTS = _weights()
