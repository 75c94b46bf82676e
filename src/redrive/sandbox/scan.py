"""The static scan of a policy: what it could reach for, read from its text alone.

The first net of policy purity. Knows syntax trees and the tables of `scan_tables.py`. Must not
import or run what it reads, and opens no file: a module beside the policy comes from the caller.

Source: DESIGN.md §7 "Purity".
"""

import ast
import posixpath
import sys
from collections.abc import Callable, Sequence

import msgspec

from redrive.sandbox import scan_tables as tables
from redrive.sandbox.modules import (
    POLICY_API,
    declared_libraries,
    is_declared,
    is_importable,
    neighbours_of,
)
from redrive.sandbox.scan_names import find_bound_names, find_chain, find_root, is_type_checking

ReadSibling = Callable[[str], str | None]
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Place = ast.Attribute | ast.Subscript


class ScanFinding(msgspec.Struct, frozen=True, order=True):
    """One thing in a policy's text that it may not do.

    Args:
        file: the policy's file, or one beside it.
        line: counted from 1; 0 if it has none.
        what: kind and name, such as `clock: time.time`.
        hint: what to do instead.
    """

    file: str
    line: int
    what: str
    hint: str


def scan_source(
    source: str, filename: str, read_sibling: ReadSibling | None = None, *, package: str = ""
) -> tuple[ScanFinding, ...]:
    """Scan a policy and, over all their imports, the modules beside it.

    Args:
        source: the policy's text; one that is no Python is a finding.
        filename: as the findings show it; modules beside it are named by its folder.
        read_sibling: gives the text of the module of that name beside the policy, or `None`.
        package: the dotted package of an installed policy; empty for a file.

    Returns:
        Sorted by file and line, each once.

    Source: DESIGN.md §7 "Purity". Cost: O(n) in the size of the texts.
    """
    libraries = declared_libraries(source)
    folder = posixpath.dirname(filename)
    findings: set[ScanFinding] = set()
    waiting = [(source, filename)]
    seen: set[str] = set()
    while waiting:
        text, file = waiting.pop()
        try:
            tree = ast.parse(text, file)
        except (SyntaxError, ValueError, RecursionError) as error:
            what = f"no Python: {getattr(error, 'msg', error)}"
            findings.add(ScanFinding(file, getattr(error, "lineno", None) or 0, what, "mend it"))
            continue
        scan = _Scan(tree, file, libraries, read_sibling or _no_sibling, package)
        scan.visit(tree)
        findings |= scan.findings
        for name in sorted(scan.siblings.keys() - seen):
            seen.add(name)
            waiting.append((scan.siblings[name], posixpath.join(folder, f"{name}.py")))
    return tuple(sorted(findings))


class _Scan(ast.NodeVisitor):
    """One walk over one module; the `visit_` names are those of `ast.NodeVisitor`."""

    def __init__(
        self,
        tree: ast.Module,
        file: str,
        libraries: Sequence[str],
        read_sibling: ReadSibling,
        package: str,
    ) -> None:
        self.findings: set[ScanFinding] = set()
        self.siblings: dict[str, str] = {}
        self._file = file
        self._libraries = libraries
        self._read_sibling = read_sibling
        self._package = package
        self._imported: dict[str, str] = {}
        self._module_names = find_bound_names(tree.body)
        self._scopes: list[frozenset[str]] = []
        self._selves: list[str] = []
        # Names that are imported anywhere are known before their first use is judged.
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self._bind_modules(node)
            elif isinstance(node, ast.ImportFrom):
                self._bind_names(node)

    def _add(self, node: ast.AST, kind: str, name: str, about: str = "") -> None:
        hint = tables.HINTS[kind].format(name=name.partition(".")[0])
        line = getattr(node, "lineno", 0)
        self.findings.add(ScanFinding(self._file, line, f"{kind}: {name}{about}", hint))

    def _is_local(self, name: str) -> bool:
        return any(name in scope for scope in self._scopes)

    # -- imports --------------------------------------------------------------------------------

    def _bind_modules(self, node: ast.Import) -> None:
        for alias in node.names:
            top = alias.name.partition(".")[0]
            self._imported[alias.asname or top] = alias.name if alias.asname else top

    def _bind_names(self, node: ast.ImportFrom) -> None:
        """Bind what is imported, but for what is a finding at the import itself."""
        for alias in node.names:
            full = f"{node.module or ''}.{alias.name}"
            if full in tables.PURE_WITH_ARGUMENTS or not _find_impure(full):
                self._imported[alias.asname or alias.name] = full

    def visit_Import(self, node: ast.Import) -> None:
        if not self._follow(node):
            for alias in node.names:
                self._judge_import(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if self._follow(node) or node.level:
            return
        for alias in node.names:
            full = f"{module}.{alias.name}"
            if module not in tables.MIXED_MODULES:
                self._judge_import(node, full if _is_module(full) else module)
                self._judge_refused(node, full)
            elif alias.name == "*":
                self._add(node, tables.MIXED_MODULES[module][0], module, " import *")
            elif full not in tables.PURE_WITH_ARGUMENTS:
                self._judge_mixed(node, full)

    def _judge_import(self, node: ast.stmt, name: str) -> None:
        top = name.partition(".")[0]
        if top == "redrive":
            if not is_declared(name, POLICY_API):
                self._add(node, "unknown module", name, ", of which redrive.policy is open")
        elif is_declared(name, self._libraries) or self._judge_refused(node, name):
            return
        elif top in sys.stdlib_module_names:
            if not _is_module(name):
                mixed = tables.MIXED_MODULES.get(top, ("unknown module",))[0]
                self._add(node, tables.IMPURE_MODULES.get(top, mixed), name, " is imported")
        elif top != self._package.partition(".")[0]:
            self._add(node, "undeclared library", top, " is imported")

    def _judge_refused(self, node: ast.AST, name: str) -> bool:
        words = name.split(".")
        for count in range(len(words), 0, -1):
            refused = ".".join(words[:count])
            if refused in tables.REFUSED_NAMES:
                self._add(node, tables.REFUSED_NAMES[refused], refused)
                return True
        return False

    def _follow(self, node: ast.Import | ast.ImportFrom) -> bool:
        """Note the modules beside the policy that are imported; tell whether no other is."""
        followed = 0
        for name in neighbours_of(node, self._package):
            is_shadowed = not self._package and is_importable(name, self._libraries)
            text = None if is_shadowed else self._read_sibling(name)
            if text is not None:
                self.siblings[name] = text
                followed += 1
        return followed == len(node.names)

    # -- uses of names --------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load) or self._is_local(node.id):
            return
        if node.id in self._imported:
            name = self._imported[node.id]
            if name in tables.MIXED_MODULES:
                self._add(node, tables.MIXED_MODULES[name][0], name, " is handed on as a value")
            else:
                self._judge_use(node, name)
        elif node.id in tables.BUILTINS and node.id not in self._module_names:
            self._add(node, tables.BUILTINS[node.id], node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in tables.ATTRIBUTES:
            self._add(node, "dynamic code", node.attr)
        if not isinstance(node.ctx, ast.Load):
            self._judge_write(node)
        name = self._dotted(node)
        if not name:
            self.generic_visit(node)
            return
        for word in tables.ATTRIBUTES.intersection(name.split(".")):
            self._add(node, "dynamic code", word)
        self._judge_use(node, name)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._judge_write(node)
        self.generic_visit(node)

    def _judge_use(self, node: ast.AST, name: str) -> None:
        if not self._judge_refused(node, name):
            self._judge_mixed(node, name)

    def _judge_mixed(self, node: ast.AST, name: str) -> None:
        impure = _find_impure(name)
        if impure:
            kind = tables.MIXED_MODULES[impure.rpartition(".")[0]][0]
            self._add(node, tables.OTHER_KINDS.get(impure, kind), impure)

    def _dotted(self, node: ast.expr) -> str:
        """Give the full name of what is imported; empty for anything else."""
        chain = find_chain(node)
        if not chain or self._is_local(chain[0]) or chain[0] not in self._imported:
            return ""
        return ".".join((self._imported[chain[0]], *chain[1:]))

    # -- calls ----------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> None:
        name = self._dotted(node.func)
        least = tables.PURE_WITH_ARGUMENTS.get(name)
        if least is not None and len(node.args) + len(node.keywords) >= least:
            for argument in (*node.args, *node.keywords):
                self.visit(argument)
            return
        if isinstance(node.func, ast.Attribute) and not name:
            self._judge_method(node, node.func)
        elif isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr", "setattr"):
            for argument in node.args[1:2]:
                if isinstance(argument, ast.Constant) and argument.value in tables.ATTRIBUTES:
                    self._add(node, "dynamic code", str(argument.value))
        self.generic_visit(node)

    def _judge_method(self, node: ast.Call, method: ast.Attribute) -> None:
        """Judge a method of an object that the scan does not know."""
        is_plain = isinstance(method.value, ast.Name)
        if method.attr in tables.CLOCK_METHODS and not (method.attr == "now" and is_plain):
            self._add(node, "clock", f".{method.attr}()")
        elif method.attr == "astimezone" and not node.args and not node.keywords:
            self._add(node, "environment", ".astimezone()", " without a zone")
        elif method.attr in tables.MUTATORS:
            self._judge_write(method, is_call=True)

    # -- state that outlives an evaluation ------------------------------------------------------

    def _judge_write(self, node: _Place, *, is_call: bool = False) -> None:
        """Judge a write to, or a change in place of, what starts from a name that lives on."""
        root = find_root(node)
        if not self._scopes or root is None:
            return
        if self._selves and root == self._selves[-1]:
            if not is_call or isinstance(node.value, _Place):
                self._add(node, "state", f"a write to {root} outside __init__")
        elif self._is_local(root):
            return
        elif root in self._module_names:
            self._add(node, "state", f"a write to the module's {root}")
        elif not is_call and root in self._imported:
            self._add(node, "state", f"a write to the imported {root}")

    def visit_Global(self, node: ast.Global) -> None:
        self._add(node, "state", f"global {', '.join(node.names)}")

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        methods = [inner for inner in node.body if isinstance(inner, _Function)]
        is_policy = any(method.name == "evaluate" for method in methods)
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        for inner in node.body:
            if is_policy and isinstance(inner, _Function) and inner.args.args:
                is_setup = inner.name in tables.SETUP_METHODS
                self._selves.append("" if is_setup else inner.args.args[0].arg)
                self.visit(inner)
                self._selves.pop()
            else:
                self.visit(inner)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def _visit_function(self, node: _Function) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None and _is_mutable(default):
                self._add(default, "state", f"a default of {node.name} that can be changed")
        for part in (*node.decorator_list, node.args, node.returns):
            if part is not None:
                self.visit(part)
        self._visit_scope(node.args, node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.args)
        self._visit_scope(node.args, [node.body])

    def _visit_scope(self, arguments: ast.arguments, body: Sequence[ast.AST]) -> None:
        self._scopes.append(find_bound_names(body, arguments))
        for statement in body:
            self.visit(statement)
        self._scopes.pop()

    # -- what would swallow a stop, and what never runs -----------------------------------------

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.type is None:
            self._add(node, "swallowing", "bare except")
        self.generic_visit(node)

    def visit_Try(self, node: ast.Try) -> None:
        for statement in node.finalbody:
            for inner in ast.walk(statement):
                if isinstance(inner, ast.Return):
                    self._add(inner, "swallowing", "return in finally")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if not is_type_checking(node.test):
            self.generic_visit(node)
            return
        for statement in node.orelse:
            self.visit(statement)


def _no_sibling(_name: str) -> None:
    return None


def _is_module(name: str) -> bool:
    """Tell whether a module of the standard library may be imported."""
    if name in tables.MIXED_MODULES:
        return True
    words = name.split(".")
    return any(".".join(words[:n]) in tables.PURE_MODULES for n in range(len(words), 0, -1))


def _find_impure(name: str) -> str:
    """Find the impure attribute of a mixed module that a name starts with; empty if none."""
    words = name.split(".")
    for count in range(len(words) - 1, 0, -1):
        module = ".".join(words[:count])
        if module in tables.MIXED_MODULES and name not in tables.MIXED_MODULES:
            attribute = words[count]
            is_pure = attribute in tables.MIXED_MODULES[module][1]
            return "" if is_pure else f"{module}.{attribute}"
    return ""


def _is_mutable(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        chain = find_chain(node.func)
        return bool(chain) and chain[-1] in tables.MUTABLE_MAKERS
    return isinstance(node, ast.List | ast.Dict | ast.Set)
