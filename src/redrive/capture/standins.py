"""What stands in the place of a function while reads are intercepted.

Knows how to hand a stand-in to the agent's code and the real thing to everyone else. Must not know
which functions are reads, nor what is done with one.

The choice is made when a name is *looked up*, not when it is called: `time.time` in a file of the
agent gives a stand-in, in any other file it gives the very function that it always gave. So a
library's calls cost what they cost, and a function that the agent hands to a library
(`default_factory=uuid4`) is recorded wherever it is called.

Three kinds of place are watched: a module (its class is replaced by a subclass with descriptors,
as the language reference allows), a Python class (descriptors in its place), and `datetime`, a
class in C (`c_types`).
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from types import FrameType, ModuleType
from typing import Any

from redrive.capture.agent_code import is_typed_in
from redrive.capture.ports import Backend

Answer = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Makes a read: the real function, and the arguments of this call."""


class Watch:
    """One interception: who records, and whose code counts.

    Attributes:
        backend: who records or serves.
        is_active: false once the interception has ended; stand-ins that are left somewhere then
            call the real thing.
        known: by file name, whether it is the agent's own; filled as files are met.
    """

    def __init__(self, backend: Backend, is_agent_code: Callable[[str], bool]) -> None:
        self.backend = backend
        self.is_active = True
        self.known: dict[str, bool] = {}
        self._is_agent_code = is_agent_code

    def is_agent(self, frame: FrameType) -> bool:
        """Say whether a frame runs the agent's own code."""
        known = self.known.get(frame.f_code.co_filename)
        if known is None:
            known = self._judge_code(frame.f_code.co_filename, frame.f_globals)
        return known and self.is_active

    def is_agent_module(self, names: Mapping[str, Any]) -> bool:
        """Say whether a module, given by its names, is the agent's own."""
        file = names.get("__file__")
        return self._judge_file(file) if isinstance(file, str) else is_typed_in(names)

    def _judge_file(self, file: str) -> bool:
        if file not in self.known:
            self.known[file] = self._is_agent_code(file)
        return self.known[file]

    def _judge_code(self, filename: str, names: Mapping[str, Any]) -> bool:
        if filename.startswith("<frozen "):
            self.known[filename] = False
            return False
        if filename.startswith("<"):
            # Code that was made from text is whose names it uses.
            return self.is_agent_module(names)
        # A notebook's cell has a file that is made up, and others may have the same.
        return is_typed_in(names) or self._judge_file(filename)


class StandIn:
    """Stands for one function; binds to no instance, as a builtin does not.

    Args:
        watch: the interception that it belongs to.
        name: the function's name.
        find_real: gives the real function as it is now, so that a test's mock is honoured.
        answer: makes the read.
        module: the name of the module that it is looked up in; absent for a method.
    """

    def __init__(
        self,
        watch: Watch,
        name: str,
        find_real: Callable[[], Callable[..., Any]],
        answer: Answer,
        module: str | None = None,
    ) -> None:
        self._watch = watch
        self._module = module
        self._answer = answer
        self.find_real = find_real
        self.__name__ = self.__qualname__ = name

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Make the read, or call the real thing once the interception has ended."""
        real = self.find_real()
        if not self._watch.is_active:
            return real(*args, **kwargs)
        return self._answer(real, args, kwargs)

    def __repr__(self) -> str:
        return f"<recorded {self.find_real()!r}>"

    def __eq__(self, other: object) -> bool:
        """Equal what else stands for the same function: each look-up of a method makes one."""
        return isinstance(other, StandIn) and bool(self.find_real() == other.find_real())

    def __hash__(self) -> int:
        return hash(self.find_real())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the function itself is: by where it is looked up.

        So the agent may hand one to a pool of processes, where nothing is intercepted.
        """
        if self._module is None:
            return getattr, (getattr(self.find_real(), "__self__"), self.__name__)  # noqa: B009
        return _look_up, (self._module, self.__name__)

    def __copy__(self) -> "StandIn":
        return self

    def __deepcopy__(self, _: dict[int, Any]) -> "StandIn":
        """A function is not copied, nor is what stands for it."""
        return self

    def belongs_to(self, watch: Watch) -> bool:
        """Say whether this is one of an interception's stand-ins."""
        return self._watch is watch


def _look_up(module_name: str, name: str) -> Any:
    """Find a function that was pickled as a stand-in, and stands for it again where one is."""
    module = importlib.import_module(module_name)
    watched = vars(type(module)).get(name)
    return watched.stand_in if isinstance(watched, _ModuleName) else getattr(module, name)


class _ModuleName:
    """One watched name of a module: a data descriptor, so that it goes before the module's own."""

    def __init__(self, watch: Watch, names: dict[str, Any], stand_in: StandIn) -> None:
        self._watch = watch
        self._known = watch.known
        self._name = stand_in.__name__
        self._names = names
        self.stand_in = stand_in

    def __get__(self, _: object, __: type | None = None) -> Any:
        frame = sys._getframe(1)
        # Asked here first, since a library's look-up should cost little.
        is_other = self._known.get(frame.f_code.co_filename) is False
        if not is_other and self._watch.is_agent(frame):
            return self.stand_in
        try:
            return self._names[self._name]
        except KeyError as error:
            raise AttributeError(f"no attribute {error}") from None

    def __set__(self, _: object, value: Any) -> None:
        self._names[self._name] = value

    def __delete__(self, _: object) -> None:
        del self._names[self._name]


def watch_module(
    watch: Watch, module: ModuleType, answers: Mapping[str, Answer]
) -> tuple[dict[int, StandIn], Callable[[], None]]:
    """Watch names of a module.

    Args:
        watch: the interception.
        module: such as `time`.
        answers: for each name of a function, what makes its read; names the module lacks are left
            out.

    Returns:
        By `id` of the real function, its stand-in; and what ends the watch.
    """
    names = vars(module)
    stand_ins = {
        name: StandIn(watch, name, lambda name=name: names[name], answer, module.__name__)  # type: ignore[misc]
        for name, answer in answers.items()
        if name in names
    }
    before = type(module)
    places: dict[str, Any] = {
        name: _ModuleName(watch, names, stand_in) for name, stand_in in stand_ins.items()
    }
    # A module is pickled by name; its replaced class is not to be asked for.
    places["__reduce__"] = lambda self: (importlib.import_module, (self.__name__,))
    during = type(before.__name__, (before,), places)
    module.__class__ = during

    def restore() -> None:
        if type(module) is during:
            module.__class__ = before

    return {id(names[name]): stand_in for name, stand_in in stand_ins.items()}, restore


class Method:
    """One watched method: looked up on an instance by the agent's code, it gives a stand-in.

    Args:
        watch: the interception.
        name: the method's name.
        real: what stands in the class without us: a function or a descriptor.
        answer: makes the read.
        is_on_class: whether it is looked up on the class (a class method), else on an instance.
    """

    def __init__(
        self, watch: Watch, name: str, real: Any, answer: Answer, *, is_on_class: bool = False
    ) -> None:
        self._watch = watch
        self._known = watch.known
        self._name = name
        self._bind = real.__get__
        self._answer = answer
        self._is_on_class = is_on_class

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        bound = self._bind(instance, owner)
        frame = sys._getframe(1)
        if self._known.get(frame.f_code.co_filename) is False:
            return bound
        is_bound = self._is_on_class or instance is not None
        return self.stand_in_for(bound) if is_bound and self._watch.is_agent(frame) else bound

    def stand_in_for(self, bound: Callable[..., Any]) -> StandIn:
        """Make the stand-in for a bound method."""
        return StandIn(self._watch, self._name, lambda: bound, self._answer)


def watch_class(
    watch: Watch, cls: type, answers: Mapping[str, Answer]
) -> tuple[dict[str, Method], Callable[[], None]]:
    """Watch methods of a class that is written in Python.

    Args:
        watch: the interception.
        cls: such as `random.Random`.
        answers: for each name of a method, what makes its read.

    Returns:
        What now stands in the class, by name; and what ends the watch.
    """
    before = {name: cls.__dict__.get(name) for name in answers}
    methods = {
        name: Method(watch, name, before[name] or getattr(cls, name), answer)
        for name, answer in answers.items()
    }
    for name, method in methods.items():
        setattr(cls, name, method)

    def restore() -> None:
        for name, method in methods.items():
            if cls.__dict__.get(name) is not method:
                continue
            if before[name] is None:
                # It was inherited.
                delattr(cls, name)
            else:
                setattr(cls, name, before[name])

    return methods, restore
