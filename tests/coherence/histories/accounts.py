"""How much a campaign was: what was done to agents, and what they did all the same."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tests.coherence.histories.campaign import Campaign
from tests.coherence.histories.checker import READS
from tests.coherence.histories.facts import Facts
from tests.coherence.histories.harms import BY_DEAF, KINDS, faults, kinds_done
from tests.coherence.histories.recording import ABSENT, OK, REFUSED, UNKNOWN, Operation, Record
from tests.coherence.histories.worker import FAULTS


def account(campaign: Campaign, record: Record) -> dict[str, float]:
    """Counts of everything, for people and for `expect_harm`."""
    facts = Facts(record)
    late = [one for operation in facts.operations for one in _lateness(facts, operation)]
    return {
        **campaign.counts,
        **faults(campaign.folder),
        **operations(record),
        "late within the bound": len(late),
        "latest in milliseconds": round(1000 * max(late, default=0.0)),
    }


def operations(record: Record) -> dict[str, float]:
    """Counts of what agents did, and how it ended."""
    done = [one for one in record.operations if one.outcome in (OK, ABSENT)]
    refused = [one for one in record.operations if one.outcome == REFUSED]
    return {
        "reads": sum(one.kind in READS for one in done),
        "writes": sum(one.writes for one in done),
        "versions": len(record.versions),
        "grants": sum(one.kind == "hold" for one in done),
        "grants lost": sum("GrantLost" in one.why for one in refused),
        "refused": len(refused),
        "unavailable": sum(one.outcome == UNKNOWN and one.why != "" for one in record.operations),
        "killed midway": sum(one.returned == math.inf for one in record.operations),
    }


def expect_work(record: Record) -> None:
    """Fail if agents did not do some of everything: a run in which nothing happens is sound."""
    done = kinds_done(record.operations)
    assert done >= KINDS, f"never done: {sorted(KINDS - done)}"


def expect_harm(campaign: Campaign, counts: Mapping[str, float]) -> None:
    """Fail if something that was to disturb the agents did not happen at all."""
    wanted = [*campaign.harms, *FAULTS, "objects collected", BY_DEAF]
    missing = [name for name in wanted if not counts.get(name)]
    assert missing == [], f"nothing of this happened: {missing}. What did: {dict(counts)}"


def _lateness(facts: Facts, operation: Operation) -> Iterator[float]:
    """By how much what was read had been overwritten before it was asked for."""
    if operation.kind not in READS:
        return
    for artifact, seen in operation.seen.items():
        late = operation.invoked - facts.superseded(artifact, seen.version)
        if late > 0:
            yield late
