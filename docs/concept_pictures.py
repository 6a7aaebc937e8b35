"""Draws the pictures of ``docs/concepts.md``: ``python -m docs.concept_pictures`` writes them to ``docs/pictures``.

Who holds what, and what a drop frees, is not drawn by hand: the rules of ``services/domain`` say it of one small
history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.drawing import Drawing
from services.domain.space_matrix import NOBODY, Holders, holders

FOLDER = Path(__file__).parent / "pictures"
NOW = 100
WIDTH = 760
"""Of a picture, in pixels: little more than the column of a page, so that words keep their size."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a key of the example: the txns of its birth and death, and its size."""

    name: str
    birth: int
    death: int
    mebibytes: int

    @property
    def is_live(self) -> bool:
        """Whether users see it now."""
        return self.death > NOW


ALIVE = NOW + 1
SNAPSHOTS = {20: "monday", 40: "tuesday", 60: "wednesday", 80: "thursday"}
VERSIONS = (
    Version("first report", 8, 30, 4),
    Version("second report", 30, 72, 8),
    Version("third report", 72, ALIVE, 9),
    Version("photo", 12, 66, 6),
    Version("draft", 44, 54, 2),
    Version("plan", 50, ALIVE, 3),
)
LIVE = tuple(SNAPSHOTS)


def held_by(version: Version) -> Holders:
    """Return the first and the last snapshot that hold a version."""
    return holders(version.birth, version.death, LIVE)


def freed(dropped: Sequence[int]) -> list[Version]:
    """Return what goes when snapshots are dropped: what is deleted, held, and held by no other snapshot."""
    left = [one for one in LIVE if one not in dropped]
    dead = [one for one in VERSIONS if not one.is_live and held_by(one) != NOBODY]
    return [one for one in dead if holders(one.birth, one.death, left) == NOBODY]


def size_of(versions: Sequence[Version]) -> str:
    """Return the size of versions as text."""
    return f"{sum(one.mebibytes for one in versions)} MiB"


def style_of(version: Version) -> str:
    """Return the colour of a version: live, held by one snapshot, by several, or by none."""
    first, last = held_by(version)
    return "live" if version.is_live else "none" if not first else "one" if first == last else "more"


def _names(found: Holders) -> str:
    names = [name for txn, name in SNAPSHOTS.items() if found[0] <= txn <= found[1]]
    return f"{names[0]} to {names[-1]}" if len(names) > 2 else " and ".join(names)


def _axis(drawing: Drawing, x_of: Callable[[int], float], top: float, bottom: float, letters: int = 9) -> None:
    """The snapshots as upright lines, and now."""
    for txn, name in SNAPSHOTS.items():
        drawing.text(x_of(txn), top - 10, name[:letters], "small strong", "middle")
        drawing.line(x_of(txn), top, x_of(txn), bottom, "dash")
    drawing.text(x_of(NOW), top - 10, "now", "small strong", "middle")
    drawing.line(x_of(NOW), top, x_of(NOW), bottom, "rule")


def _bars(drawing: Drawing, x_of: Callable[[int], float], top: float, row: float, shown: Sequence[Version]) -> None:
    """Each version as a bar from its birth to its death, with a dot for each snapshot that shows it."""
    for number, one in enumerate(shown):
        y = top + row * number
        drawing.box(x_of(one.birth), y, x_of(min(one.death, NOW)) - x_of(one.birth), 18, style_of(one))
        for txn in LIVE:
            if one.birth <= txn < one.death:
                drawing.dot(x_of(txn), y + 9)


def lifetimes() -> str:
    """Who holds what, and what a drop frees."""
    drawing = Drawing(
        WIDTH,
        470,
        "Who holds a version, and what a drop frees",
        "Six versions of keys are drawn as bars from birth to death, over four snapshots, which are upright lines. A "
        "snapshot holds each deleted version whose bar its line crosses. Below: what dropping some snapshots frees.",
    )

    def x_of(txn: int) -> float:
        return 112 + txn * 4

    _axis(drawing, x_of, 40, 262)
    drawing.text(540, 30, "held by", "small strong")
    _bars(drawing, x_of, 54, 34, VERSIONS)
    for number, one in enumerate(VERSIONS):
        y = 68 + 34 * number
        drawing.text(16, y, one.name)
        who = "live" if one.is_live else _names(held_by(one)) if held_by(one) != NOBODY else "nobody"
        drawing.text(540, y, f"{who}, {size_of([one])}", style_of(one).replace("none", "soft"))
    drawing.line(16, 280, WIDTH - 16, 280)
    drawing.text(16, 306, "drop", "small strong")
    drawing.text(250, 306, "frees", "small strong")
    sets = ([20], [40], [60], [40, 60], [20, 40, 60])
    for number, dropped in enumerate(sets):
        y = 330 + 27 * number
        drawing.text(16, y, ", ".join(SNAPSHOTS[txn] for txn in dropped))
        drawing.text(250, y, size_of(freed(dropped)), "strong")
        why = " + ".join(one.name for one in freed(dropped)) or "what it holds, others hold, too"
        drawing.text(330, y, why, "soft")
    return drawing.svg()


def matrix() -> str:
    """How the space matrix comes from the chain."""
    drawing = Drawing(
        WIDTH,
        330,
        "From the chain of snapshots to the space matrix",
        "On the left the deleted versions as bars over four snapshots. On the right a table with a row for the first "
        "and a column for the last holder: each bar is added to one cell. A frame has the cells that dropping tuesday "
        "and wednesday together frees.",
    )

    def x_of(txn: int) -> float:
        return 92 + txn * 2.7

    shown = [one for one in VERSIONS if not one.is_live]
    drawing.text(20, 22, "first and last holder of each version", "strong")
    drawing.text(404, 22, "each is added to one cell", "strong")
    _axis(drawing, x_of, 66, 262, letters=3)
    _bars(drawing, x_of, 84, 48, shown)
    for number, one in enumerate(shown):
        drawing.text(20, 94 + 48 * number, one.name, "small")
        drawing.text(20, 109 + 48 * number, f"{one.mebibytes} MiB", "small soft")
    _cells(drawing, 496, 66, shown)
    return drawing.svg()


def _cells(drawing: Drawing, left: float, top: float, shown: Sequence[Version]) -> None:
    """The matrix: rows are first holders, columns are last ones."""
    wide, high = 64, 48
    drawing.text(left + 2 * wide, top - 22, "last holder", "small soft", "middle")
    drawing.text(left - 94, top + 10, "first holder", "small soft")
    for number, name in enumerate(SNAPSHOTS.values()):
        drawing.text(left + wide * (number + 0.5), top - 4, name[:3], "small strong", "middle")
        drawing.text(left - 10, top + high * (number + 0.5) + 10, name[:3], "small strong", "end")
    for row, first in enumerate(LIVE):
        for column, last in enumerate(LIVE):
            if first <= last:
                inside = [one for one in shown if held_by(one) == (first, last)]
                x, y = left + wide * column, top + 6 + high * row
                drawing.box(x + 3, y + 3, wide - 6, high - 6, style_of(inside[0]) if inside else "box")
                words, style = (size_of(inside), "on") if inside else ("0", "soft")
                drawing.text(x + wide / 2, y + high / 2 + 5, words, style, "middle")
    drawing.box(left + wide - 1, top + 5 + high, 2 * wide + 2, 2 * high + 2, "frame")
    y = top + 4 * high + 40
    drawing.text(20, y, f"framed: dropping tuesday and wednesday frees {size_of(freed([40, 60]))}")
    nobody = size_of([one for one in shown if held_by(one) == NOBODY])
    drawing.text(20, y + 24, f"held by nobody: {nobody}, in a cell of its own, may be freed", "soft")


ACTORS = {
    "client": "client",
    "metadata": "metadata",
    "streaming": "Spark",
    "key_deletion": "key_deletion",
    "scm": "block store",
    "ledger": "ledger",
}
STEPS = (
    ("client", "metadata", "metadata.commands", "delete this key"),
    ("metadata", "", "", "the row moves to deletedTable"),
    ("metadata", "streaming", "gc.deleted-entries", "a candidate"),
    ("streaming", "", "", "first judge: if it is held, it waits"),
    ("streaming", "key_deletion", "gc.purge-keys", "nobody holds it"),
    ("key_deletion", "", "", "second judge, after the undo window"),
    ("key_deletion", "metadata", "metadata.commands", "claim this row"),
    ("metadata", "", "", "third judge: the row moves to reclaimTable"),
    ("metadata", "key_deletion", "metadata.progress", "its blocks"),
    ("key_deletion", "scm", "scm.commands", "delete blocks"),
    ("scm", "key_deletion", "scm.replies", "deleted"),
    ("key_deletion", "metadata", "metadata.commands", "finish"),
    ("metadata", "", "", "the row is removed"),
    ("metadata", "ledger", "gc.ledger", "why it was safe"),
)
"""Who sends what to whom on which topic; or what one does by itself."""


def deletion() -> str:
    """The way of a deletion."""
    drawing = Drawing(
        WIDTH,
        664,
        "The way of a deletion",
        "From top to bottom: a client's delete reaches metadata; Spark judges first, key_deletion second, metadata "
        "third, with the claim; then the block store deletes the blocks, and metadata removes the row and writes the "
        "ledger. Each arrow is a message on a topic of Kafka.",
    )
    x_of = {name: 56 + 130 * number for number, name in enumerate(ACTORS)}
    for name, words in ACTORS.items():
        drawing.line(x_of[name], 44, x_of[name], 652, "rule")
        drawing.box(x_of[name] - 53, 12, 106, 32)
        drawing.text(x_of[name], 33, words, "strong", "middle")
    number, y = 0, 84.0
    for sender, receiver, topic, words in STEPS:
        x = x_of[sender]
        if not receiver:
            wide = 6.3 * len(words) + 24
            drawing.box(x - 10, y - 16, wide, 25)
            drawing.text(x + 2, y + 1, words, "small")
            y += 39
            continue
        number += 1
        to = x_of[receiver]
        drawing.arrow(x, to, y)
        start = min(x, to) + 9
        drawing.text(start, y - 6, f"{number} {words}", "small")
        drawing.text(start, y + 15, topic, "code soft")
        y += 44
    return drawing.svg()


PICTURES = {"lifetimes.svg": lifetimes, "deletion.svg": deletion, "matrix.svg": matrix}


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw(), "utf-8")


if __name__ == "__main__":
    main()
