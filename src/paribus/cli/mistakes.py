"""A mistake in a command, in one line: what is missing or unknown, and what would do."""

from __future__ import annotations

from cyclopts import (
    CycloptsError,
    MissingArgumentError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from paribus.errors import nearest

STUDY = (
    "a study: a shipped name (`paribus studies` lists them) or the path of a TOML file, such as: "
    "paribus {verb} quickstart"
)


def explain(error: CycloptsError) -> str:
    """`error` in words of ours where those of the library would not help."""
    verb = " ".join(error.command_chain or ())
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        name = error.argument.names[0]
        if name in (error.unused_tokens or ()):
            return f"{verb} {name} needs a value: {error.argument.parameter.help}"
        if name == "--study":
            return f"{verb} needs {STUDY.format(verb=verb)}"
        by_place = not error.argument.field_info.is_keyword_only
        what = name.removeprefix("--").upper() if by_place else name
        return f"{verb} needs {what}: {error.argument.parameter.help}"
    if isinstance(error, UnknownOptionError) and error.token is not None:
        arguments = error.argument_collection or ()
        # A group of options is an argument as well, and nobody types its name.
        known = [one.names[0] for one in arguments if one.names[0].startswith("--")]
        unknown = error.token.keyword or error.token.value
        # Dashes would make any two options look alike.
        bare = {name.removeprefix("--"): name for name in known}
        hint = nearest(unknown.lstrip("-"), bare)
        if hint.startswith("known"):
            hint = f"known: {', '.join(sorted(known))}"
            if "--set" in known:
                hint += "; keys of the study are set with --set key=value"
        else:
            hint = hint.replace("'", "").replace("did you mean ", "did you mean --")
        return f"{verb} has no option {unknown}: {hint}"
    if isinstance(error, UnusedCliTokensError):
        extra = " ".join(error.unused_tokens or ())
        return f"{verb} does not know what to do with '{extra}'; see paribus {verb} --help"
    return str(error)
