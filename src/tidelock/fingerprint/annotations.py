"""What the annotations in a class say, which dataclasses and libraries read while a program runs.

They count by what they mean and not by how they are written: as a text or not, `Optional[int]` or `int | None`,
`List[int]` or `list[int]`. What cannot be looked up, because it is imported for type checkers only, counts as it
is written.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import InitVar
from types import NoneType, UnionType
from typing import Annotated, Any, ForwardRef, Literal, NamedTuple, Union, get_args, get_origin


class AnnotationMeaning(NamedTuple):
    """What an annotation is made of, and how it reads, without texts: one of them may be a password."""

    made_of: Any
    shown: str


def annotations_of(kind: type) -> dict[str, AnnotationMeaning]:
    """What the annotations in the body of a class mean, by the names of its fields."""
    return {str(name): _meaning(one, kind) for name, one in _own(kind).items()}


def _own(kind: type) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(kind, format=annotationlib.Format.FORWARDREF)
    return inspect.get_annotations(kind)


def _meaning(value: Any, kind: type) -> AnnotationMeaning:
    if isinstance(value, ForwardRef):
        return _meaning(value.__forward_arg__, kind)
    if isinstance(value, str):
        return _looked_up(value, kind)
    if isinstance(value, list | tuple):  # the parameters of a function
        return _together("", [_meaning(one, kind) for one in value])
    if isinstance(value, InitVar):
        return _together("InitVar", [_meaning(value.type, kind)])
    origin = get_origin(value)
    if origin is not None:
        return _generic(origin, value, kind)
    if value is None or value is Ellipsis:
        return AnnotationMeaning(NoneType if value is None else value, str(value).replace("Ellipsis", "..."))
    name = getattr(value, "__name__", None) or getattr(value, "_name", None)
    if isinstance(value, type) or name is None:
        return AnnotationMeaning(value, name or type(value).__name__)
    return AnnotationMeaning(
        f"{type(value).__name__} {name}", str(name)
    )  # a variable of types, or a word of `typing`


def _generic(origin: Any, value: Any, kind: type) -> AnnotationMeaning:
    given = get_args(value)
    if origin is Annotated:
        first, plain = _meaning(value.__origin__, kind), AnnotationMeaning([*value.__metadata__], "…")
        return _together("Annotated", [first, plain])
    if origin is Literal:
        return AnnotationMeaning(("Literal", [*given]), "Literal[…]")
    inside = [_meaning(one, kind) for one in given]
    if origin in (Union, UnionType):
        return _together("Union", inside)
    told = _meaning(origin, kind)
    return AnnotationMeaning((told.made_of, [one.made_of for one in inside]), _together(told.shown, inside).shown)


def _together(name: str, inside: list[AnnotationMeaning]) -> AnnotationMeaning:
    return AnnotationMeaning(
        (name, [one.made_of for one in inside]), f"{name}[{', '.join(one.shown for one in inside)}]"
    )


def _looked_up(text: str, kind: type) -> AnnotationMeaning:
    scope = vars(sys.modules.get(kind.__module__, object))
    try:
        found = eval(text, dict(scope), {kind.__name__: kind, **vars(kind)})
    except Exception:  # a name that only type checkers know
        return AnnotationMeaning("".join(text.split()), "…")
    return AnnotationMeaning("".join(text.split()), "…") if isinstance(found, str) else _meaning(found, kind)
