"""``deepclean dead-letters``: show messages that could not be read or applied, send them again or drop them."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer

from schemas.answers import DeadLetterBytes, DeadLetterCount
from schemas.codec import DecodeError, codec, schema_id_of
from schemas.records import DeadLetterRow, DeadLetterState, MessageHeader, ResolveDeadLetter
from schemas.topics import BY_NAME
from services.cli.amounts import duration_ms
from services.cli.confirmation import YesOption, confirm
from services.cli.operate.dead_letter_advice import Advice, advice_for_record
from services.cli.output import print_fields, print_json, print_result, print_table
from services.cli.session import JsonOption, Session, session_of
from services.cli.terminal import printable, say
from services.client.errors import PlaneError
from services.client.wire.paging import first_rows
from services.domain.dead_letters import RETRY_HEADER, RetryMark, mark_header
from services.domain.words import counted
from services.log.clock import SystemClock
from services.wording.figures import bytes_text, time_text

app = typer.Typer(no_args_is_help=True, help="Show messages that could not be read or applied, and resolve them.")
PAGE_ROWS = 1_000
SHOWN_CHARACTERS = 100
SHOWN_BYTES = 4_096

LetterArgument = Annotated[str, typer.Argument(metavar="SHARD:NUMBER", help="The letter, as list prints it.")]
ByOption = Annotated[str, typer.Option("--by", help="Who resolves the letter; by default the user of this machine.")]


@app.command("list")
def list_letters(
    context: typer.Context,
    service: Annotated[str, typer.Option(help="Only letters of this service.")] = "",
    reason: Annotated[str, typer.Option(help="Only letters with this error.")] = "",
    topic: Annotated[str, typer.Option(help="Only letters about messages of this topic.")] = "",
    since: Annotated[
        int | None,
        typer.Option(parser=duration_ms, metavar="DURATION", help="Only letters no older than this, as in 2h."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Include resolved letters.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of letters of each shard.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List the dead letters, newest first, and count them by kind."""
    since_ms = 0 if since is None else max(0, SystemClock().now_ms() - since)
    wanted: dict[str, Any] = {
        "service": service,
        "topic": topic,
        "error": reason,
        "since_ms": since_ms,
        "with_resolved": everything,
    }
    with session_of(context) as session:
        shards = range(session.connected().shards)
        listed = {shard: first_rows(_pages(session, shard, wanted), limit) for shard in shards}
        counts = [
            (shard, count)
            for shard in shards
            for count in session.connected().snapshots(shard).dead_letter_counts(**wanted)
        ]
    letters = [(shard, row) for shard in shards for row in listed[shard].rows]
    letters.sort(key=lambda placed: -placed[1].time_ms)
    if any(one.has_more for one in listed.values()):
        say(f"There are more than {limit} letters of a shard: --limit shows more.", err=True)
    if as_json:
        print_json(
            {
                "letters": [{"shard": shard, **msgspec.to_builtins(row)} for shard, row in letters],
                "counts": [{"shard": shard, **msgspec.to_builtins(count)} for shard, count in counts],
            }
        )
        return
    _print_letters(letters)
    _print_counts(counts)


def _pages(session: Session, shard: int, wanted: dict[str, Any]) -> Iterator[DeadLetterRow]:
    reads = session.connected().snapshots(shard)
    start_after = None
    while True:
        page = reads.dead_letters(**wanted, start_after=start_after, limit=PAGE_ROWS)
        yield from page
        if len(page) < PAGE_ROWS:
            return
        start_after = page[-1].number


def _print_letters(letters: list[tuple[int, DeadLetterRow]]) -> None:
    print_table(
        ["LETTER", "WHEN (UTC)", "SERVICE", "MESSAGE OF", "REASON", "RETRIES", "STATE", "ERROR"],
        (
            (
                f"{shard}:{row.number}",
                time_text(row.time_ms),
                _line(row.service),
                _line(f"{row.topic} {row.partition}:{row.offset}"),
                _line(row.error),
                row.attempts,
                row.state.lower(),
                _line(row.message),
            )
            for shard, row in letters
        ),
        numbers=["RETRIES"],
    )


def _print_counts(counts: list[tuple[int, DeadLetterCount]]) -> None:
    if not counts:
        return
    say("")
    print_table(
        ["SHARD", "SERVICE", "TOPIC", "REASON", "STATE", "LETTERS"],
        (
            (shard, _line(one.service), _line(one.topic), _line(one.error), one.state.lower(), one.count)
            for shard, one in counts
        ),
        numbers=["SHARD", "LETTERS"],
    )


@app.command()
def show(context: typer.Context, letter: LetterArgument, as_json: JsonOption = False) -> None:
    """Show one letter: what it means, what to do, and the message as it came, in hex and decoded."""
    shard, number = _letter(letter)
    with session_of(context) as session:
        read = session.connected().snapshots(shard).dead_letter(number)
    row, value = read.letter, bytes.fromhex(read.value_hex)
    record, why_not_decoded = _decoded(read)
    decoded = None if record is None else {type(record).__name__: msgspec.to_builtins(record)}
    advice = advice_for_record(row.topic, record, SystemClock().now_ms())
    schema_id = schema_id_of(value)
    if as_json:
        print_json(
            {
                "shard": shard,
                "letter": row,
                "consequence": advice.consequence,
                "action": advice.action,
                "has_bytes": read.has_bytes,
                "schema_id": schema_id,
                "key_hex": read.key_hex,
                "headers": read.headers,
                "value_hex": read.value_hex,
                "decoded": decoded,
                "why_not_decoded": why_not_decoded,
            }
        )
        return
    print_fields(
        [
            ("letter", f"{shard}:{row.number} of {time_text(row.time_ms)} UTC"),
            ("dead-lettered by", row.service),
            ("message", f"{row.topic}, partition {row.partition}, offset {row.offset}"),
            ("reason", f"{row.error}: {row.message}"),
            ("size", bytes_text(row.size_bytes) + (", not all of it here" if row.is_cut else "")),
            ("retries", f"{row.attempts}, last from {shard}:{row.retry_of}" if row.attempts else "none"),
            ("state", _state(row)),
            ("schema id", schema_id or "none"),
            ("key", read.key_hex or "none"),
            *((f"header {_line(header.name)}", header.value_hex) for header in read.headers),
            ("consequence", advice.consequence),
            ("what to do", advice.action),
        ]
    )
    if not read.has_bytes:
        say(
            "",
            f"It was dealt with: its bytes are in dead-letters, partition {shard}, offset {row.number}, and where "
            f"the message came from.",
        )
        return
    say("", *_hex_dump(value), "")
    if decoded is None:
        say(f"not decoded: {why_not_decoded}")
    else:
        print_json(decoded)


def _decoded(read: DeadLetterBytes) -> tuple[Any, str]:
    """Return the record of a letter's message and "", or None and the reason why it cannot be decoded."""
    if not read.has_bytes:
        return None, "its bytes are no longer in dead-letters"
    topic = BY_NAME.get(read.letter.topic)
    if topic is None:
        return None, f"{read.letter.topic} is not a topic of this plane"
    try:
        return codec(topic.record).decode_message(bytes.fromhex(read.value_hex)), ""
    except DecodeError as error:
        return None, str(error)


@app.command()
def retry(
    context: typer.Context,
    letter: LetterArgument,
    by: ByOption = "",
    reason: Annotated[str, typer.Option(help="Reason why the message should succeed now.")] = "",
    again: Annotated[bool, typer.Option("--again", help="Send it even if an earlier retry failed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Send the unchanged message to its topic again. If it fails again, a new letter is recorded."""
    shard, number = _letter(letter)
    with session_of(context) as session:
        plane = session.connected()
        read = plane.snapshots(shard).dead_letter(number)
        row = read.letter
        record, _ = _decoded(read)
        advice = advice_for_record(row.topic, record, SystemClock().now_ms())
        _check_retry(read, shard, plane.shards, advice, is_forced=again)
        mark = RetryMark(row.attempts + 1, row.number)
        unmarked = (header for header in read.headers if header.name != RETRY_HEADER)
        headers = [MessageHeader(header.name, bytes.fromhex(header.value_hex)) for header in unmarked]
        plane.send_again(
            row.topic,
            row.partition,
            bytes.fromhex(read.value_hex),
            bytes.fromhex(read.key_hex),
            [*headers, mark_header(mark)],
        )
        # Resolved after sending: if this command dies in between, the message is sent and the letter is still open.
        session.request(shard, ResolveDeadLetter(number, DeadLetterState.RETRIED, by or _user(), reason))
    print_result(
        {"letter": letter, "topic": row.topic, "partition": row.partition, "attempt": mark.attempts},
        f"letter {letter} was sent again to {row.topic}, partition {row.partition} (retry {mark.attempts})",
        as_json=as_json,
    )


def _check_retry(read: DeadLetterBytes, shard: int, shards: int, advice: Advice, *, is_forced: bool) -> None:
    row, name = read.letter, f"{shard}:{read.letter.number}"
    if not read.has_bytes:
        raise PlaneError("DEAD_LETTER_RESOLVED", f"dead letter {name} was {row.state.lower()} by {row.who} before")
    if not advice.is_retry_allowed or not 0 <= row.partition < shards:
        raise PlaneError("INVALID_REQUEST", f"a message of {_line(row.topic)} is not sent again: {advice.action}")
    if row.is_cut:
        raise PlaneError(
            "INVALID_REQUEST",
            f"letter {name} does not have all of its message: read the original from {_line(row.topic)}, partition "
            f"{row.partition}, offset {row.offset}, send that, then drop the letter",
        )
    if row.attempts and not is_forced:
        raise PlaneError(
            "INVALID_REQUEST",
            f"letter {name} was sent again {counted(row.attempts, 'time')} and has failed each time, now with "
            f"{_line(row.error)}: repair the cause first, then add --again",
        )


@app.command()
def drop(
    context: typer.Context,
    letter: LetterArgument,
    reason: Annotated[str, typer.Option(help="Reason why the message need not be applied.")],
    by: ByOption = "",
    is_confirmed: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Mark a letter as resolved. Its message is never applied."""
    shard, number = _letter(letter)
    who = by or _user()
    confirm(f"The message of letter {letter} will never be applied.", is_confirmed=is_confirmed)
    with session_of(context) as session:
        session.request(shard, ResolveDeadLetter(number, DeadLetterState.DROPPED, who, reason))
    print_result({"letter": letter, "who": who, "reason": reason}, f"letter {letter} dropped", as_json=as_json)


def _letter(text: str) -> tuple[int, int]:
    shard, separator, number = text.partition(":")
    if not (separator and shard.isdecimal() and number.isdecimal() and len(shard) <= 4 and len(number) <= 18):
        raise typer.BadParameter(f"{text!r} is not SHARD:NUMBER, as in 0:17")
    return int(shard), int(number)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user on this machine, as in some containers
        return "unknown"


def _state(row: DeadLetterRow) -> str:
    if row.state is DeadLetterState.OPEN:
        return "open"
    why = f": {row.reason}" if row.reason else ""
    return f"{row.state.lower()} by {row.who} on {time_text(row.resolved_time_ms)} UTC{why}"


def _line(text: str) -> str:
    """Return the first ``SHOWN_CHARACTERS`` of an untrusted text, as one line."""
    shown = printable(text[: SHOWN_CHARACTERS + 1])
    return shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[:SHOWN_CHARACTERS]}…"


def _hex_dump(value: bytes) -> list[str]:
    """Return the lines of a hex dump with 16 bytes a line, of at most ``SHOWN_BYTES``."""
    lines = []
    for start in range(0, min(len(value), SHOWN_BYTES), 16):
        part = value[start : start + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<47}  {text}")
    if len(value) > SHOWN_BYTES:
        lines.append(f"… {counted(len(value) - SHOWN_BYTES, 'more byte')}; --json has all")
    return lines or ["(no bytes)"]
