"""Make the built-in compression dictionary, from synthetic data only.

    python tools/train_dictionary.py 1 src/ropewalk/store/dictionaries/1.zdict

A dictionary is part of the stored format: a published number never changes. To
improve it, train a new number, ship both, and write with the newer one.

The samples look like what agents keep (chat messages, tool calls, documents, state)
and are made here from word lists, by a seeded generator. No user's data, and no
text written by others, is ever used.
"""

from __future__ import annotations

import hashlib
import random
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ormsgpack
import zstandard

DICTIONARY_SIZE = 32 * 1024
SAMPLES = 6000
NODE_SIZE = 4096

SMALL_WORDS = """
the of and to in is it that for you was with on as are this be at or from have an by not but
what all were when we there can your which their if will each about how up out them then she
many some so these would other into has more two like him see time could no make than been its
who now people my made over did down only way find use may long little very after our just
""".split()

WORDS = """
ability able about above accept access account across action active activity actually add address
after again against agent agree air allow almost alone along already also although always amount
analysis another answer any anyone anything appear apply approach area argue around arrive article
ask assume attention author available average avoid away back bad balance bank base because become
before begin behavior behind believe below benefit best better between big bill black blue board
body book both box bring budget build building business buy call camera campaign can capital car
card care carry case catch cause center central century certain chair challenge chance change
character charge chart check child choice choose city claim class clear clearly close code cold
collection college color come common community company compare complete computer concern condition
conference consider contain context continue control cost could country couple course court cover
create crime culture cup current customer cut dark data database day dead deal death debate decade
decide decision deep default degree delay deliver demand describe design despite detail determine
develop development device difference different difficult dinner direction director discover
discuss discussion disease document door double down draft draw dream drive drop drug during each
early east easy economic economy edge education effect effort eight either else email employee
empty end energy enjoy enough enter entire environment error especially establish estimate even
evening event ever every everybody everyone everything evidence exact exactly example executive
exist expect experience expert explain extra eye face fact factor fail failure fall family far
fast father fear feature feel feeling few field fight figure file fill film final finally
financial find fine finger finish fire firm first fish five floor fly focus folder follow food
foot force foreign forget form former forward found four free friend front full function fund
future game garden gas general generation get girl give glass global go goal good government great
green ground group grow growth guess gun guy hair half hand hang happen happy hard have head
health hear heart heat heavy help her here high himself history hit hold home hope hospital hot
hotel hour house however huge human hundred idea identify image imagine impact important improve
include including increase indeed indicate individual industry information input inside instead
institution interest interesting interview investment involve issue item itself job join just keep
key kid kind kitchen know knowledge land language large last late later laugh law lawyer lay lead
leader learn least leave left legal less let letter level lie life light like likely limit line
link list listen little live local location log long look lose loss lot love low machine magazine
main maintain major make man manage management manager many map market marriage material matter
may maybe mean measure media medical meet meeting member memory mention message method middle
might military million mind minute miss mission model modern moment money month morning most
mother mouth move movement movie much music must myself name nation national natural nature near
nearly necessary need network never new news newspaper next nice night none north note nothing
notice number occur offer office officer official often old once one online only onto open
operation opportunity option order organization original other others our output outside over own
owner page pain paper parent part participant particular particularly partner party pass past path
patient pattern pay peace people per percent perform performance perhaps period person personal
phone physical pick picture piece place plan plant play player please point police policy
political poor popular population position positive possible power practice prepare present
president pressure pretty prevent previous price private probably problem process produce product
production professional professor program project property propose protect prove provide public
pull purpose push put quality query question quickly quite radio raise range rate rather reach
read ready real reality realize really reason receive recent recently recognize record red reduce
reference reflect region relate relationship release remain remember remove report represent
request require research resource respond response responsibility rest restaurant result return
reveal review rich right rise risk road rock role room rule run safe same save say scene schedule
school science scientist score sea search season seat second section security see seek seem sell
send senior sense separate series serious serve server service session set seven several shake
share she shoot short shot should show side sign significant similar simple simply since single
sister site situation six size skill skin small social society software some somebody someone
something sometimes son song soon sort sound source south space speak special specific speech
spend sport spring staff stage stand standard star start state statement station stay step still
stock stop store story strategy street strong structure student study stuff style subject success
successful such suddenly suffer suggest summary summer support sure surface system table take talk
target task tax teach teacher team technology television tell ten tend term test text than thank
that their theory there therefore they thing think third those though thought thousand thread
threat three through throughout throw thus time title today together tonight tool top total tough
toward town trade traditional training travel treat treatment tree trial trip trouble true truth
try turn type under understand unit until update upon use user usually value various version very
victim video view violence visit voice vote wait walk wall want war warning watch water way weapon
wear website week weight well west whatever when where whether while white whole whom whose why
wide wife will win wind window wish within without woman wonder word work worker world worry would
write writer wrong year yellow yes yesterday yet you young your yourself
""".split()

LINKS = (
    """
of the|in the|to the|on the|for the|and the|that the|with the|from the|by the|at the|is the|as the
it is|this is|there is|there are|to be|can be|will be|must be|may be|should be|has been|have been
do not|does not|is not|are not|if you|you can|you may|we can|they are|such as|as well as|one of the
the same|a new|a number of|more than|part of the|because of|so that|in which|for each|all of the
that is|which is|when the|into the|over the|about the|between the|through the|a single|any other
""".replace("\n", "|")
    .strip("|")
    .split("|")
)

ENDINGS = ["", "", "", "", "s", "s", "ed", "ing", "ly", "er", "ment", "tion", "al", "ive"]

OPENINGS = (
    """
Let me check|I will look into|Here is a summary of|Please find|Could you explain|Thank you for
I found the following|Based on the|According to the|It looks like|The next step is to
I need to know|Can you tell me more about|Sure, I can help with|First, we should consider
In addition to|As an example|On the other hand|The result of|This means that|There are several
You are a helpful assistant that|The user asked for|I would like to|We decided to|However, the
The most important|For more information about|At the same time|In order to|The main reason for
I could not find|The tool returned|Searching for|Reading the|Writing the|After a closer look at
Do not forget to|Make sure that|If you want|What is the|How does the|Why did the|When will the
It is possible that|We still have to|The plan has three parts:|To answer the question about
""".replace("\n", "|")
    .strip("|")
    .split("|")
)

TOOLS = """
search_web read_file write_file list_files run_code fetch_page query_database send_email
get_weather create_event lookup_user summarize translate calculate retrieve_documents
""".split()

MODELS = "large-model-1 small-model-2 chat-model-mini reasoning-model embedding-model".split()
TOPICS = "travel finance health support legal weather research code news science".split()
NAMES = "Alice Bob Carol David Emma Frank Grace Henry Irene James Laura Maria Peter Sofia".split()
HOSTS = "https://www.example.com/ https://example.org/ https://docs.example.net/".split()


class Samples:
    """Synthetic values, all from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def identifier(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def moment(self) -> str:
        pick = self.random.randint
        return (
            f"202{pick(4, 7)}-{pick(1, 12):02}-{pick(1, 28):02}"
            f"T{pick(0, 23):02}:{pick(0, 59):02}:{pick(0, 59):02}.{pick(0, 999999):06}+00:00"
        )

    def word(self) -> str:
        return self.random.choice(WORDS)

    def piece(self) -> str:
        chance = self.random.random()
        if chance < 0.2:
            return self.random.choice(SMALL_WORDS)
        if chance < 0.5:
            return self.random.choice(LINKS)
        return self.word() + self.random.choice(ENDINGS)

    def sentence(self) -> str:
        words = [self.piece() for _ in range(self.random.randint(4, 14))]
        if len(words) > 8 and self.random.random() < 0.5:
            words[self.random.randint(3, 6)] += ","
        if self.random.random() < 0.35:
            words.insert(0, self.random.choice(OPENINGS))
        text = " ".join(words)
        return text[0].upper() + text[1:] + self.random.choice([".", ".", ".", ".", "?", "!"])

    def prose(self, most: int) -> str:
        count = self.random.randint(1, max(1, most))
        parts = [self.sentence() for _ in range(count)]
        glue = " " if self.random.random() < 0.7 else "\n"
        text = glue.join(parts)
        if self.random.random() < 0.12:
            text = "\n".join(f"- {part}" for part in parts)
        if self.random.random() < 0.06:
            text = "\n".join(
                f"{place}. **{self.word()}**: {part}" for place, part in enumerate(parts, 1)
            )
        if self.random.random() < 0.04:
            text += f"\n```python\ndef {self.word()}({self.word()}):\n    return {self.word()}\n```"
        return text

    def message(self) -> dict[str, Any]:
        role = self.random.choice(["user", "assistant", "assistant", "tool", "system"])
        shapes: list[Callable[[str], dict[str, Any]]] = [
            self.plain_message, self.plain_message, self.rich_message, self.library_message,
        ]  # fmt: skip
        return self.random.choice(shapes)(role)

    def plain_message(self, role: str) -> dict[str, Any]:
        message: dict[str, Any] = {"role": role, "content": self.prose(8)}
        if role == "assistant" and self.random.random() < 0.3:
            message["tool_calls"] = [self.call() for _ in range(self.random.randint(1, 2))]
        if role == "tool":
            message["tool_call_id"] = f"call_{self.random.getrandbits(96):024x}"
            message["name"] = self.random.choice(TOOLS)
        return message

    def rich_message(self, role: str) -> dict[str, Any]:
        return {
            "id": self.identifier(),
            "role": role,
            "content": [{"type": "text", "text": self.prose(6)}],
            "created_at": self.moment(),
            "metadata": {"model": self.random.choice(MODELS), "finish_reason": "stop"},
            "usage": self.usage(),
        }

    def library_message(self, role: str) -> dict[str, Any]:
        kind = {"user": "human", "assistant": "ai"}.get(role, role)
        return {
            "type": kind,
            "content": self.prose(6),
            "additional_kwargs": {},
            "response_metadata": {
                "model_name": self.random.choice(MODELS),
                "token_usage": self.usage(),
            },
            "name": None,
            "id": f"run-{self.identifier()}",
            "tool_calls": [],
            "invalid_tool_calls": [],
        }

    def usage(self) -> dict[str, Any]:
        pick = self.random.randint
        return {
            "input_tokens": pick(10, 9000),
            "output_tokens": pick(1, 900),
            "total_tokens": pick(10, 9900),
        }

    def call(self) -> dict[str, Any]:
        arguments = f'{{"query": "{self.sentence()[:-1]}", "limit": {self.random.randint(1, 50)}}}'
        return {
            "id": f"call_{self.random.getrandbits(96):024x}",
            "type": "function",
            "function": {"name": self.random.choice(TOOLS), "arguments": arguments},
        }

    def document(self) -> dict[str, Any]:
        return {
            "id": self.identifier(),
            "title": self.sentence()[:-1],
            "page_content": self.prose(12),
            "metadata": {
                "source": self.random.choice(HOSTS) + self.word() + "/" + self.word() + ".html",
                "score": self.random.random(),
                "page": self.random.randint(1, 400),
                "author": self.random.choice(NAMES),
                "tags": self.random.sample(TOPICS, 2),
                "created_at": self.moment(),
                "updated_at": self.moment(),
            },
        }

    def state(self) -> dict[str, Any]:
        return {
            "task": self.sentence()[:-1],
            "stage": self.random.choice(["plan", "search", "parse", "review", "write", "done"]),
            "status": self.random.choice(["pending", "running", "completed", "failed"]),
            "step": self.random.randint(0, 500),
            "counter": self.random.randint(0, 9999),
            "thread_id": self.identifier(),
            "user_id": f"user-{self.random.randint(1, 9999)}",
            "messages": [self.message() for _ in range(self.random.randint(0, 2))],
            "results": [self.sentence() for _ in range(self.random.randint(0, 3))],
            "config": {"temperature": 0.7, "max_tokens": 1024, "model": self.random.choice(MODELS)},
            "error": None,
            "retries": self.random.randint(0, 3),
            "done": self.random.random() < 0.5,
        }

    def step(self) -> dict[str, Any]:
        return {
            "agent": self.random.choice(NAMES).lower() + "-agent",
            "branch": self.random.choice(["main", "main", "main", "draft"]),
            "description": self.sentence()[:-1],
            "logic_step": self.word(),
            "status": "completed",
            "timestamp": self.moment(),
            "metadata": {
                "confidence": self.random.random(),
                "duration_ms": self.random.randint(1, 9000),
            },
        }

    def sample(self) -> bytes:
        """One node: a run of alike items, cut at about the size of a node."""
        make = self.random.choices(
            [self.message, self.document, self.state, self.step, lambda: self.prose(20)],
            weights=[8, 3, 3, 2, 3],
        )[0]
        count = self.random.choice([1, 1, 1, 2, 3, 5])
        return ormsgpack.packb([make() for _ in range(count)])[:NODE_SIZE]


def train(number: int) -> bytes:
    """The bytes of dictionary `number`: the same each time, for one version of zstd."""
    samples = Samples(seed=number)
    data = [samples.sample() for _ in range(SAMPLES)]
    trained = zstandard.train_dictionary(
        DICTIONARY_SIZE, data, k=128, d=8, dict_id=32768 + number, level=3
    )
    return trained.as_bytes()


def main() -> None:
    number, target = int(sys.argv[1]), Path(sys.argv[2])
    if target.exists():
        sys.exit(f"{target} exists: a published dictionary never changes; take the next number")
    data = train(number)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    print(f"{target}: {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
