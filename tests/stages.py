"""What a test does around the commands of a page: the states in which they make sense, and what stands in for names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from services.client.kafka_plane import KafkaPlane
from services.plane.stack.stack import running_client
from tests.session_shell import Ran, Shell, Started


@dataclass(slots=True)
class Stage:
    """A session on a page, as its states see it."""

    shell: Shell
    stand_ins: dict[str, str] = field(default_factory=dict)
    """What a name of the reader's, as the page writes it, is here: in commands and in their output."""
    ran: dict[str, Ran] = field(default_factory=dict)
    """What the commands of the page did, by what the page says without the remark behind it; of equal ones the last."""
    used: set[str] = field(default_factory=set)
    """The names for which something stood in."""

    @property
    def place(self) -> Path:
        """The checkout."""
        return self.shell.directory

    @property
    def home(self) -> Path:
        """The home of the checkout."""
        return self.place / ".deepclean"

    @property
    def scratch(self) -> Path:
        """A place outside of the checkout."""
        return self.shell.scratch

    def run(self, *commands: str) -> str:
        """Type commands that are not on the page, and succeed; return what the last one prints."""
        output = ""
        for command in commands:
            ran = self.shell.run(command)
            assert ran.status == 0, f"{command}\nstatus {ran.status}\n{ran.output}{ran.errors}"
            output = ran.output
        return output

    @contextlib.contextmanager
    def client(self) -> Iterator[KafkaPlane]:
        """A client of the running plane, for what would take a command for each of many keys."""
        with running_client(self.home) as plane:
            yield plane

    def here(self, text: str) -> str:
        """A text of the page with what stands in for the names in it."""
        if not self.stand_ins:
            return text

        def stand_in(found: re.Match[str]) -> str:
            self.used.add(found[0])
            return self.stand_ins[found[0]]

        longest_first = sorted(self.stand_ins, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, longest_first)), stand_in, text)


State = Callable[[Stage], AbstractContextManager[None]]
"""Before it yields it makes what the reader's machine is like when he comes to the commands; then it looks at what
these have done, and ends what it has started."""


@contextlib.contextmanager
def as_it_is(_: Stage) -> Iterator[None]:
    """What the commands before have left."""
    yield


@dataclass(frozen=True, slots=True)
class Staging:
    """How a page is played whose commands need more than a new checkout. Commands are named without their remarks."""

    around: State = as_it_is
    """Around all commands of the page."""
    blocks: Mapping[str, State] = field(default_factory=dict)
    """Around single blocks, by the heading above; the second block with commands below it is ``HEADING 2``."""
    endless: Mapping[str, Callable[[Stage, Started], None]] = field(default_factory=dict)
    """Commands that run until Ctrl-C: what returns when they have done what the page says."""
    answered: Mapping[str, str] = field(default_factory=dict)
    """What the reader answers to commands that ask."""
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    """What stands in for names from the beginning on."""


ALONE = Staging()
