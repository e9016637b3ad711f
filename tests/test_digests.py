"""The digest of the source: better words leave it, and any change of code changes it."""

import pytest

from paribus.digests import _code

SOURCE = '''"""What it is."""

# Why.
WORDS = """
# no comment
"""


class A:
    """A class."""

    x: int = 1
    """A field."""

    def f(self):
        """Return it."""; y = 2 * self.x
        return y  # at the end
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("What it is.", "What this is, in other words."),
        ("# Why.\n", ""),
        ("# Why.", "# Another reason."),
        ("A class.", "A class of ours.\n\n    In two paragraphs.\n    "),
        ("A field.", "Something."),
        ("Return it.", "Give it back."),
        ("\n\nclass", "\n\n\n\nclass"),
    ],
)
def test_words_are_left_out(old, new):
    assert SOURCE.count(old) == 1
    assert _code(SOURCE.replace(old, new)) == _code(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# no comment", "# another text"),
        ("y = 2 *", "y = 3 *"),
        ("int = 1", "int = 2"),
        ("return y", "return 2 * y"),
    ],
)
def test_code_is_not(old, new):
    assert SOURCE.count(old) == 1
    assert _code(SOURCE.replace(old, new)) != _code(SOURCE)
