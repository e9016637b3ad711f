"""Which parts of texts have bytes in common, and who opened one before."""

import hashlib

from hypothesis import assume, given, strategies as st

from paribus.ledger import Event, TextPart, overlap, uses

CORPUS, OTHER = "a" * 64, "b" * 64
SIZE = 40


def part(start: int, stop: int | None, **more: str) -> TextPart:
    """Return a part of CORPUS, with a digest of its own for each place."""
    about = {"role": "test", "corpus": CORPUS} | more
    digest = hashlib.sha256(repr((start, stop, about)).encode()).hexdigest()
    return TextPart.model_validate(about | {"digest": digest, "start": start, "stop": stop})


def places() -> st.SearchStrategy[tuple[int, int | None]]:
    ends = st.one_of(st.none(), st.integers(0, SIZE))
    pairs = st.tuples(st.integers(0, SIZE), ends)
    return pairs.filter(lambda pair: pair[1] is None or pair[0] <= pair[1])


def bytes_of(place: tuple[int, int | None]) -> set[int]:
    start, stop = place
    return set(range(start, SIZE + 1 if stop is None else stop))


@given(one=places(), other=places())
def test_overlap_is_of_bytes(one, other):
    assume(one != other)
    shared = bool(bytes_of(one) & bytes_of(other))
    assert overlap(part(*one), part(*other)) == shared == overlap(part(*other), part(*one))
    assert not overlap(part(*one), part(*other, corpus=OTHER))


@given(one=places(), other=places(), form=st.sampled_from(["exact", "near"]))
def test_a_deduplicated_corpus_is_never_missed(one, other, form):
    assert overlap(part(*one), part(*other, form=form))


def test_the_same_text_is_the_same_wherever_it_is_from():
    one = TextPart(role="test", digest="c" * 64, corpus=CORPUS, start=0, stop=5)
    assert overlap(one, TextPart(role="validation", digest="c" * 64, corpus=OTHER, start=9))
    assert not overlap(one, TextPart(role="test", digest="d" * 64))
    assert not overlap(one, TextPart(role="test", digest="d" * 64, corpus=CORPUS))  # place unknown


def opened(name: str, text: TextPart, hour: int, tests: int = 0) -> Event:
    time = f"2026-01-01T{hour:02}:00:00+00:00"
    id_ = hashlib.sha256(name.encode()).hexdigest()
    return Event(kind="opening", time=time, study=name, registration=id_, text=text, tests=tests)


def test_studies_are_counted_once_and_in_order():
    tenth, last = part(80, 90, role="validation"), part(90, 100)
    pilot = part(90, 100, role="validation")
    events = [
        opened("late", last, 5, 3),
        opened("late", tenth, 4),
        opened("pilot", pilot, 1, 2),
        opened("early", part(89, 100), 3, 1),
        opened("early", part(70, 89, role="validation"), 2),
        Event(
            kind="registration", time="2026-01-01T00:00:00+00:00", study="x", registration="e" * 64
        ),
    ]
    found = uses(events, [last])
    assert [(use.study, use.is_test, use.tests) for use in found] == [
        ("pilot", False, 2),
        ("early", True, 1),
        ("late", True, 3),
    ]
    assert found[1].time == "2026-01-01T03:00:00+00:00"
    # The second role of a study on the same bytes is the same study.
    assert [use.study for use in uses(events, [tenth])] == ["early", "late"]
    assert [use.study for use in uses(events, [last], own=events[0].registration)] == [
        "pilot",
        "early",
    ]
