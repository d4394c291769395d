"""The fingerprint of a function: what it says, and all that it uses in the user's own modules.

The walk goes from a function to the values that it captures, to its defaults and to the globals that it and the
functions inside of it name; from there on to their functions, classes and values. What belongs to a library, to
Python or to Tidelock is told by its name and not entered. Every step gives a part with a name of its own, so that
two fingerprints can be compared part by part.

Values count by what they are: numbers, texts, containers, tables, dates, dataclasses, objects of the user's
classes. Of an object that nothing else is known of (a DataFrame, a connection, a lock), or that raises something
when it is looked at, only its type counts, because it would otherwise be another one in every run. Sets count in
sorted order. A path below the folder of the module counts from there on, so that a program can be moved.

Functions, classes and what is deep inside of a value wait in a queue until the one before is told, so that no
program is too deep for Python.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence, MutableSet
from dataclasses import replace
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from tidelock.fingerprint.annotations import annotations_of
from tidelock.fingerprint.classes import attributes, functions_of, options
from tidelock.fingerprint.contents import fields_of, is_looked_into_later, later_fields_of
from tidelock.fingerprint.modules import assigned, chains, module_at
from tidelock.fingerprint.owners import Owners, folder_of
from tidelock.fingerprint.parts import NAME, RULES, VALUE, FingerprintPart
from tidelock.fingerprint.references import defined, looked_up, references
from tidelock.fingerprint.source import Sources, digest, nested, told_statements
from tidelock.fingerprint.values import Shown, is_udf, plain_value

_NAMED = (type, ModuleType, BuiltinFunctionType)
_LONGEST = 300
"""As many characters of a value are shown."""
_DEEPEST = 40
"""As many values inside of each other are told in one part."""
_RANKINGS = 2
"""As many sets inside of each other are put in order by all that is in them."""
_COLLECTIONS = (MutableMapping, MutableSequence, MutableSet)


def fingerprint(
    function: Callable[..., Any],
    sources: Sources | None = None,
    owners: Owners | None = None,
    *,
    contents: bool = True,
) -> tuple[FingerprintPart, ...]:
    """The parts of a function's fingerprint, the same in every run of the same program.

    ``contents`` says whether what is in captured lists, dictionaries and sets counts; a function that collects
    something in them does not change by that.
    """
    walk = _Walk(sources or Sources(), owners or Owners.of(function), contents=contents)
    return walk.tell(getattr(function, "__name__", type(function).__name__), function)


def value_fingerprint(
    name: str, value: object, sources: Sources | None = None, owners: Owners | None = None
) -> tuple[FingerprintPart, ...]:
    """The parts of a value's fingerprint: ``name``, and the functions that it contains."""
    return _Walk(sources or Sources(), owners or Owners(), contents=True).tell(name, value)


def codes_of(function: Callable[..., Any], sources: Sources, owners: Owners) -> frozenset[CodeType]:
    """The code of a function and of all that it uses in the user's own modules, with the functions inside."""
    walk = _Walk(sources, owners, contents=False)
    walk.tell("", function)
    return frozenset(inside for code in walk.codes for inside in nested(code))


class _Walk:
    def __init__(self, sources: Sources, owners: Owners, *, contents: bool, rankings: int = 0) -> None:
        self._sources = sources
        self._owners = owners
        self._contents = contents
        self._rankings = rankings
        self._parts: dict[str, FingerprintPart] = {}
        self._waiting: deque[tuple[str, Any, Callable[[str, Any], None]]] = deque()
        self._depth = 0
        self._labels: dict[int, str] = {}
        self._names: set[str] = set()
        self._deeper: dict[int, str] = {}
        self._told: dict[int, Shown] = {}
        self._alive: list[object] = []
        self._rules = 1
        self._afterwards: deque[tuple[str, Any, Callable[[str, Any], None]]] = deque()
        self._looked_into: Counter[str] = Counter()
        self._assigned: set[tuple[str, str]] = set()
        self.codes: list[CodeType] = []

    def tell(self, name: str, value: object) -> tuple[FingerprintPart, ...]:
        """Make a part of something, and of all that it uses."""
        self._enter(name, value)
        while self._waiting or self._afterwards:
            if not self._waiting:  # all that the first rules see is told
                self._rules = RULES
            name, value, put = (self._waiting or self._afterwards).popleft()
            try:
                put(name, value)
            except Exception:  # whatever an object of somebody else does when it is looked at
                self._add(name, VALUE, self._only_type(name, value))
        return tuple(self._parts.values())

    def _enter(self, name: str, value: object) -> None:
        """Make a part of what is used under a name."""
        label = self._labelled(name, value)
        if label is None:
            shown = self._value(name, value)
            form = NAME if issubclass(type(value), _NAMED) else VALUE
            self._add(name, form, shown)
        elif label.rstrip("'") != name.rstrip("'"):  # another name of something that is known already
            self._add(name, NAME, Shown(label, label))

    def _add(self, name: str, form: str, shown: Shown) -> None:
        self._put(FingerprintPart(name, form, digest(shown.exact), shown.shown))

    def _put(self, part: FingerprintPart) -> None:
        name, known = part.name, self._parts.get(part.name)
        while known is not None and known.digest != part.digest:
            name = f"{name}'"
            known = self._parts.get(name)
        if known is None or self._rules == 1:
            self._parts[name] = replace(part, name=name, since=self._rules)

    def _labelled(self, name: str, value: object) -> str | None:
        """The name under which a function or a class of the user is told; None if it is something else."""
        kind = type(value)
        if kind is FunctionType and self._owners.is_own_code(value):  # type: ignore[arg-type]
            return self._label(name, value, self._function)
        if issubclass(kind, type) and self._owners.is_own_class(value):  # type: ignore[arg-type]
            return self._label(name, value, self._class)
        return None

    def _label(self, name: str, value: object, put: Callable[[str, Any], None]) -> str:
        if id(value) not in self._labels:
            while name in self._names:
                name = f"{name}'"
            self._names.add(name)
            self._labels[id(value)] = name
            self._alive.append(value)
            self._waiting.append((name, value, put))
        return self._labels[id(value)]

    # -- functions

    def _function(self, name: str, function: FunctionType) -> None:
        told = self._sources.tell(function.__code__, function.__doc__)
        self._put(FingerprintPart(name, told.form, told.digest, told.shown))
        self.codes.append(function.__code__)
        if told.fields:
            shown = Shown(told.fields, f"{len(told.fields.splitlines())} annotations")
            self._afterwards.append((f"{name}, annotations", shown, self._add_value))
        folder = folder_of(function.__globals__)
        defaults = (function.__defaults__ or (), function.__kwdefaults__ or {})
        if any(defaults):
            self._add(f"{name}, defaults", VALUE, self._value(f"{name}.defaults", defaults, folder))
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if not _is_empty(cell) and variable != "__class__":
                key = told.names.get(variable, variable)
                shown = self._value(f"{name}.{key}", cell.cell_contents, folder)
                self._add(f"{name}, captured {key}", VALUE, shown._replace(shown=f"{variable} = {shown.shown}"))
        for chain in references(function.__code__):
            self._reference(chain, function.__globals__)

    def _reference(self, chain: tuple[str, ...], scope: Mapping[str, Any]) -> None:
        """Follow a name, through modules of the user to what is in them."""
        found = looked_up(chain, scope, self._owners)
        if found is None:
            return
        name, value, where = found
        if type(value) is ModuleType and self._owners.is_own_module(value):
            self._module(name, value)
        elif issubclass(type(value), (FunctionType, *_NAMED)) and not is_udf(value):
            self._enter(name, value)
        else:
            what = f"{name}, as a UDF" if is_udf(value) else name
            self._add(what, VALUE, self._value(name, value, where))

    def _module(self, name: str, module: ModuleType) -> None:
        for attribute, inside in sorted(defined(module).items()):
            self._enter(f"{name}.{attribute}", inside)
        self._afterwards.append((name, module, self._globals))

    def _globals(self, name: str, module: ModuleType) -> None:
        """What a module has besides the functions and classes that it defines."""
        told = assigned(self._sources.statements(str(getattr(module, "__file__", None))))
        origins = [origin for path in told.everything if (origin := module_at(path, module)) is not None]
        names = {*told.statements, *told.imported, *(one for origin in origins for one in vars(origin))}
        for one in sorted(names & vars(module).keys()):
            self._assigned_in(f"{name}.{one}", module, one)

    def _assigned_in(self, name: str, module: ModuleType, attribute: str) -> None:
        """Tell a global of a module by the statements that assign it, here or where it is imported from."""
        value = vars(module).get(attribute)
        if (module.__name__, attribute) in self._assigned or not self._owners.is_own_module(module):
            return
        self._assigned.add((module.__name__, attribute))
        if self._labelled(name, value) is not None:
            self._enter(name, value)
            return
        told = assigned(self._sources.statements(str(getattr(module, "__file__", None))))
        if attribute in told.statements:
            self._statements(name, module, told.statements[attribute])
        elif attribute in told.imported:
            path, original = told.imported[attribute]
            self._from_elsewhere(name, module_at(path, module), original)
        else:
            for path in told.everything:
                self._from_elsewhere(name, module_at(path, module), attribute)

    def _from_elsewhere(self, name: str, module: ModuleType | None, attribute: str) -> None:
        if module is not None and attribute in vars(module) and not attribute.startswith("__"):
            self._afterwards.append((name, module, lambda at, it: self._assigned_in(at, it, attribute)))

    def _statements(self, name: str, module: ModuleType, statements: list[ast.stmt]) -> None:
        told = told_statements(statements)
        self._put(FingerprintPart(name, VALUE, told.digest, told.shown[:_LONGEST]))
        above = name.rpartition(".")[0]
        for chain in chains(statements):
            first, *rest = chain
            value = vars(module).get(first)
            if isinstance(value, ModuleType) and rest:
                self._from_elsewhere(f"{above}.{first}.{rest[0]}", value, rest[0])
            elif not isinstance(value, ModuleType):
                self._from_elsewhere(f"{above}.{first}", module, first)

    # -- classes

    def _class(self, name: str, kind: type) -> None:
        above = (type(kind), *kind.__bases__) if self._owners.is_own_class(type(kind)) else kind.__bases__
        bases = [self._value(f"{name}.base", one).exact for one in above]
        inside = attributes(kind, self._owners)
        told = [
            f"{attribute}={self._attribute(f'{name}.{attribute}', value)}" for attribute, value in inside.items()
        ]
        exact = repr([bases, told, self._value(f"{name}.options", options(kind)).exact])
        self._add(name, VALUE, Shown(exact, f"class {kind.__name__} with {len(inside)} attributes"))
        self._afterwards.append((name, kind, self._annotations))

    def _annotations(self, name: str, kind: type) -> None:
        for field, meaning in annotations_of(kind).items():
            exact = self._value(f"{name}.{field}", meaning.made_of).exact
            self._add(f"{name}.{field}, type", VALUE, Shown(exact, meaning.shown))

    def _attribute(self, name: str, value: Any) -> str:
        made_of = functions_of(value)
        if made_of is None:
            return self._value(name, value).exact
        return f"{type(value).__name__} {[self._attribute(name, one) for one in made_of]}"

    # -- values

    def _value(self, name: str, value: Any, folder: str | None = None) -> Shown:
        """A value, exactly and for people; what it is made of is entered."""
        self._depth += 1
        try:
            return self._exactly(name, value, folder)
        except Exception:  # whatever an object of somebody else does when it is looked at
            return self._only_type(name, value)
        finally:
            self._depth -= 1

    def _exactly(self, name: str, value: Any, folder: str | None) -> Shown:
        if not self._contents and type(value) is bytearray:
            return self._only_type(name, value)
        plain = plain_value(value, folder)
        if plain is not None:
            return plain
        if self._depth > _DEEPEST:
            return self._later(name, value, folder)
        if is_udf(value) or isinstance(value, FunctionType | MethodType | functools.partial):
            return self._callable(name, value)
        if isinstance(value, type):
            return Shown(f"class {self._labelled(name, value) or _path(value)}", value.__qualname__)
        if isinstance(value, ModuleType):
            return self._as_module(name, value)
        if type(value) in (list, tuple, set, frozenset, dict):
            return self._container(name, value, folder)
        if isinstance(value, BuiltinFunctionType):
            inside = getattr(value, "__self__", None)
            bound = "" if isinstance(inside, ModuleType | None) else self._value(name, inside, folder).exact
            return Shown(f"builtin {_path(value)} {bound}", value.__qualname__)
        return self._object(name, value, folder)

    def _later(self, name: str, value: Any, folder: str | None) -> Shown:
        """Leave a value that is deep inside of another one to a part of its own."""
        if id(value) not in self._deeper:
            label = self._deeper[id(value)] = f"{name}, further inside {len(self._deeper) + 1}"
            self._alive.append(value)
            self._waiting.append(
                (label, value, lambda at, it: self._add(at, VALUE, self._value(name, it, folder)))
            )
        return Shown(self._deeper[id(value)], "…")

    def _as_module(self, name: str, module: ModuleType) -> Shown:
        if not self._owners.is_own_module(module):
            return Shown(f"module {module.__name__}", module.__name__)
        self._module(name, module)
        return Shown("module of the user", module.__name__)

    def _callable(self, name: str, value: Any) -> Shown:
        if is_udf(value):
            returns = self._value(f"{name}.returnType", value.returnType).exact
            kind = f"udf {returns} {value.evalType} {getattr(value, 'deterministic', True)}"
            return Shown(f"{kind} {self._value(name, value.func).exact}", f"UDF {name}")
        if isinstance(value, functools.partial):
            given = self._value(name, (value.args, value.keywords))
            called = self._value(name, value.func)
            return Shown(f"partial {called.exact} {given.exact}", f"{called.shown} with {given.shown}")
        if isinstance(value, MethodType):
            inside = self._value(name, value.__self__)
            return Shown(f"method {self._value(name, value.__func__).exact} of {inside.exact}", value.__qualname__)
        label = self._labelled(name, value)
        if label is not None:
            return Shown(f"function {label}", f"function {value.__qualname__}")
        return self._foreign(name, value)

    def _foreign(self, name: str, function: FunctionType) -> Shown:
        """A function of a library, by its name; what it captures, such as a function of the user, counts."""
        path = f"{function.__globals__.get('__name__')}.{function.__code__.co_qualname}"
        if hasattr(function, "registry") and path == "functools.singledispatch.<locals>.wrapper":
            cells = [{**function.registry}]  # it captures a cache, too
        else:
            cells = [cell.cell_contents for cell in function.__closure__ or () if not _is_empty(cell)]
        if path.startswith(("tidelock.", "builtins.")) or not cells:
            return Shown(f"function {path}", path)

        def entered() -> Shown:
            return Shown(f"function {path} {self._items('list', name, cells, None).exact}", path)

        return self._once(name, function, entered)

    def _container(self, name: str, value: Any, folder: str | None) -> Shown:
        kind = type(value).__name__
        if not self._contents and isinstance(value, list | set | dict):
            return Shown(kind, kind)
        return self._once(name, value, lambda: self._items(kind, name, value, folder))

    def _items(self, kind: str, name: str, value: Any, folder: str | None) -> Shown:
        if isinstance(value, dict):
            pairs = ((self._value(name, k, folder), self._value(name, v, folder)) for k, v in value.items())
            items = [Shown(f"{k.exact}: {v.exact}", f"{k.shown}: {v.shown}") for k, v in pairs]
        elif isinstance(value, set | frozenset):
            items = sorted(self._value(name, one, folder) for one in self._ordered(value))
        else:
            items = [self._value(name, one, folder) for one in value]
        exact, shown = (", ".join(texts) for texts in ([i.exact for i in items], [i.shown for i in items]))
        return Shown(f"{kind}({exact})", f"{kind}({shown})")

    def _ordered(self, members: Iterable[Any]) -> list[Any]:
        """The members of a set in an order that does not depend on where they are in memory."""
        outlines = [(_outline(one), one) for one in members]
        known = Counter(outline for outline, _ in outlines)
        ranked = [(outline, "" if known[outline] == 1 else self._rank(one), one) for outline, one in outlines]
        return [one for *_, one in sorted(ranked, key=lambda ranks: ranks[:2])]

    def _rank(self, value: Any) -> str:
        """All that a value says, whatever was told before it."""
        if self._rankings == _RANKINGS:
            raise RecursionError("sets are too deep inside of each other")
        walk = _Walk(self._sources, self._owners, contents=self._contents, rankings=self._rankings + 1)
        parts = walk.tell("", value)
        ranks = ([(part.name, part.digest) for part in parts if part.since == since] for since in (1, RULES))
        return "".join(map(repr, ranks))

    def _object(self, name: str, value: Any, folder: str | None) -> Shown:
        kind = type(value)
        told = self._only_type(name, value)
        own = self._owners.is_own_class(kind)
        if self._contents and is_looked_into_later(value):
            self._looked_into[name] += 1
            label = f"{name}, contents {self._looked_into[name]}"
            self._afterwards.append((label, value, self._later_fields))
        collects = not self._contents and isinstance(value, _COLLECTIONS)
        fields = None if collects else fields_of(value, own=own)
        if fields is None:
            return told

        def entered() -> Shown:
            inside = [(field, self._value(name, fields[field], folder)) for field in sorted(fields)]
            exact, shown = (", ".join(f"{f}={one[i]}" for f, one in inside) for i in (0, 1))
            return Shown(f"{told.exact}({exact})", f"{kind.__name__}({shown})")

        return self._once(name, value, entered)

    def _later_fields(self, name: str, value: Any) -> None:
        self._add_value(name, self._value(name, later_fields_of(value)))

    def _add_value(self, name: str, shown: Shown) -> None:
        self._add(name, VALUE, shown)

    def _only_type(self, name: str, value: object) -> Shown:
        kind = type(value)
        return Shown(
            f"class {self._labelled(f'{name} ({kind.__name__})', kind) or _path(kind)}", f"a {kind.__name__}"
        )

    def _once(self, name: str, value: object, tell: Callable[[], Shown]) -> Shown:
        """A value that may contain itself, where only its name counts, or stand in several places."""
        if id(value) in self._labels:
            return Shown(f"again {self._labels[id(value)]}", "…")
        if id(value) not in self._told:
            self._alive.append(value)
            self._labels[id(value)] = f"{type(value).__name__} in {name}"
            try:
                exact, shown = tell()
            finally:
                del self._labels[id(value)]
            self._told[id(value)] = Shown(_short(exact), shown[:_LONGEST])
        return self._told[id(value)]


def _path(value: Any) -> str:
    return f"{getattr(value, '__module__', None)}.{value.__qualname__}"


def _is_empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  (there is no other way to ask)
    except ValueError:
        return True
    return False


def _short(exact: str) -> str:
    return exact if len(exact) <= _LONGEST else f"digest {digest(exact)}"


def _outline(value: Any) -> tuple[str, str]:
    """What is seen of a value at once, wherever it is in memory."""
    plain = plain_value(value)
    named = value.__qualname__ if issubclass(type(value), (FunctionType, type)) else ""
    return type(value).__name__, named if plain is None else plain.exact
