"""Gathers from the source files what the code answers and reports: error codes, messages and remedies.

`python -m tests.house.error_catalogue` writes docs/errors.md. Nothing is declared for it: a refusal is an
ErrorCode in a call, a return or an assignment, and its message is the text beside it. A function that only
returns `KafkaError(...)` is followed to its callers.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from quorate.admin.explanations import EXPLANATIONS
from quorate.protocol.errors import ErrorCode

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "quorate"
DOCUMENT = ROOT / "docs" / "errors.md"

ANSWERING = (
    "broker",
    "controller",
    "log_levels.py",
    "net",
    "node",
    "protocol",
    "raft",
    "records",
    "security",
)
"""The packages and modules whose codes reach clients."""
PLAIN = {"ToolError": ("tools", "node"), "ConfigError": ("config",)}
"""The exceptions without a code that tell an operator what is wrong, and the packages that raise them."""
PACKAGES = frozenset({*ANSWERING, *(package for packages in PLAIN.values() for package in packages)})
_LOOKUPS = frozenset({"frozenset", "set", "get", "of", "due", "isinstance", "count"})


@dataclass(frozen=True, order=True)
class Refusal:
    """One place that refuses.

    `kind` is the class of the exception. `code` is empty for those of `PLAIN`, and for the code of
    another error.
    """

    kind: str
    code: str
    module: str
    message: str
    remedy: str = ""


@dataclass(frozen=True)
class _Factory:
    """A function that returns the error of its arguments."""

    parameters: tuple[str, ...]
    defaults: Mapping[str, ast.expr]
    call: ast.Call


@cache
def refusals() -> list[Refusal]:
    """Every refusal of the package, each once for its module, sorted."""
    found: set[Refusal] = set()
    for path in sorted(SOURCE.rglob("*.py")):
        module = path.relative_to(SOURCE).as_posix()
        if module.partition("/")[0] not in PACKAGES:
            continue
        found.update(refusals_of(module, path.read_text(encoding="utf-8")))
    return sorted(found)


def refusals_of(module: str, text: str) -> Iterator[Refusal]:
    """The refusals of one module."""
    package = module.partition("/")[0]
    tree = ast.parse(text)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    factories = _factories(tree)
    bodies = {factory.call for factory in factories.values()}
    for node, texts in _with_texts(tree, _texts(tree)):
        if isinstance(node, ast.Call) and node not in bodies:
            yield from _of_call(node, module, package, factories, texts)
        elif package in ANSWERING and _is_code(node):
            yield from _of_code(node, module, parents, texts, bodies, factories)


def _of_call(
    call: ast.Call,
    module: str,
    package: str,
    factories: Mapping[str, _Factory],
    texts: Mapping[str, ast.expr],
) -> Iterator[Refusal]:
    name = _last_name(call.func)
    factory = factories.get(name)
    if factory is not None:
        bound = dict(factory.defaults)
        bound.update(zip(factory.parameters, call.args, strict=False))
        bound.update({k.arg: k.value for k in call.keywords if k.arg})
        inner = _template_arguments(factory.call, {**texts, **bound})
        if _last_name(factory.call.func) in PLAIN or package not in ANSWERING:
            return
        for code in _codes(factory.call.args[0], bound):
            yield Refusal("KafkaError", code, module, *inner)
    elif name == "KafkaError" and package in ANSWERING and call.args:
        for code in _codes(call.args[0], texts) or [""]:
            yield Refusal("KafkaError", code, module, *_template_arguments(call, texts))
    elif name in PLAIN and package in PLAIN[name] and call.args:
        if name == "ConfigError":
            reason, remedy = (_argument(call, i, key) for i, key in ((2, "reason"), (3, "remedy")))
            yield Refusal(name, "", module, _template(reason, texts), _template(remedy, texts))
        else:
            yield Refusal(name, "", module, _template(call.args[0], texts))


def _of_code(
    node: ast.AST,
    module: str,
    parents: Mapping[ast.AST, ast.AST],
    texts: Mapping[str, ast.expr],
    bodies: set[ast.Call],
    factories: Mapping[str, _Factory],
) -> Iterator[Refusal]:
    """The refusal of a code that is answered without an exception."""
    below, above = node, parents.get(node)
    while isinstance(above, (ast.IfExp, ast.Tuple, ast.keyword, ast.BoolOp)):
        if isinstance(above, ast.IfExp) and below is above.test:
            return
        if isinstance(above, ast.Tuple) and not isinstance(parents.get(above), (ast.Return, ast.IfExp)):
            return
        below, above = above, parents.get(above)
    assert isinstance(node, ast.Attribute)
    message = ""
    if isinstance(above, ast.Call):
        name = _last_name(above.func)
        if name in _LOOKUPS or name == "KafkaError" or above in bodies or name in factories:
            return
        message = _message_beside(above, texts)
    elif isinstance(above, ast.Return):
        if isinstance(below, ast.Tuple) and len(below.elts) > 1:
            second = below.elts[1]
            known = _is_text(second) or (isinstance(second, ast.Name) and second.id in texts)
            message = _template(second, texts) if known else ""
    elif isinstance(above, ast.Assign):
        message = _assigned_message(above, parents, texts)
        target = above.targets[0]
        if isinstance(target, ast.Name) and (target.id.isupper() or _raised_later(target.id, above, parents)):
            return
    elif isinstance(above, ast.Dict):
        if below not in above.values:
            return
    elif not isinstance(above, (ast.Lambda,)):
        return
    yield Refusal("KafkaError", node.attr, module, message)


def _raised_later(name: str, assignment: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether a KafkaError of the same function gets this code, and is a refusal by itself."""
    scope = assignment
    while scope in parents and not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
        scope = parents[scope]
    return any(
        isinstance(node, ast.Call)
        and _last_name(node.func) == "KafkaError"
        and isinstance(node.args[0], ast.Name)
        and node.args[0].id == name
        for node in ast.walk(scope)
    )


def _is_code(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "ErrorCode"
        and node.attr.isupper()
        and node.attr != "NONE"
    )


def _codes(expression: ast.expr, bound: Mapping[str, ast.expr]) -> list[str]:
    """The names of the codes that an argument may have,."""
    if isinstance(expression, ast.Name):
        expression = bound.get(expression.id) or bound.get(f"code {expression.id}") or expression
    return [n.attr for n in ast.walk(expression) if _is_code(n) and isinstance(n, ast.Attribute)]


def _factories(tree: ast.Module) -> dict[str, _Factory]:
    """The functions that do nothing but return an error, or that return one at their end."""
    found = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or not isinstance(node.body[-1], ast.Return):
            continue
        value = node.body[-1].value
        body = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        if (
            len(body) == 1
            and isinstance(value, ast.Call)
            and _last_name(value.func) in ("KafkaError", *PLAIN)
        ):
            names = [a.arg for a in node.args.args]
            late = names[len(names) - len(node.args.defaults) :]
            defaults = dict(zip(late, node.args.defaults, strict=True))
            found[node.name] = _Factory(tuple(names), defaults, value)
    return found


def _with_texts(
    node: ast.AST, texts: Mapping[str, ast.expr]
) -> Iterator[tuple[ast.AST, Mapping[str, ast.expr]]]:
    """Every node below a node, with the names that stand for a text where it is."""
    for child in ast.iter_child_nodes(node):
        inner = (
            {**texts, **_texts(child)} if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else texts
        )
        yield child, inner
        yield from _with_texts(child, inner)


def _texts(scope: ast.AST) -> dict[str, ast.expr]:
    """The names that a module or a function assigns texts to.

    A name of several texts stands for all. Names of codes are in it as "code NAME".
    """
    found: dict[str, ast.expr] = {}
    pending = list(getattr(scope, "body", []))
    while pending:
        statement = pending.pop(0)
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_text(value):
                found[name] = ast.IfExp(value, found[name], value) if name in found else value
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.IfExp() | ast.Attribute() as value):
                if any(map(_is_code, ast.walk(value))):
                    found[f"code {name}"] = value
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                pass
            case _:
                for block in ("body", "orelse", "finalbody", "handlers", "cases"):
                    pending += getattr(statement, block, [])
    return found


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add) and _is_text(node.left)
    if isinstance(node, ast.IfExp):
        return _is_text(node.body)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    by_name = {k.arg: k.value for k in call.keywords}
    return call.args[position] if len(call.args) > position else by_name.get(name)


def _template_arguments(call: ast.Call, texts: Mapping[str, ast.expr]) -> tuple[str, str]:
    return (
        _template(_argument(call, 1, "message"), texts),
        _template(_argument(call, 99, "remedy"), texts),
    )


def _message_beside(call: ast.Call, texts: Mapping[str, ast.expr]) -> str:
    """The text among the arguments of a call that has a code."""
    named = [k.value for k in call.keywords if k.arg in ("message", "error_message")]
    for argument in [*named, *call.args]:
        if _is_text(argument) or (isinstance(argument, ast.Name) and argument.id in texts):
            return _template(argument, texts)
    return ""


def _assigned_message(
    assignment: ast.Assign, parents: Mapping[ast.AST, ast.AST], texts: Mapping[str, ast.expr]
) -> str:
    """The text that the next statements assign to the error message of the same response."""
    target = assignment.targets[0]
    if not isinstance(target, ast.Attribute):
        return ""
    block = next(
        (v for v in vars(parents[assignment]).values() if isinstance(v, list) and assignment in v), []
    )
    for other in block:
        match other:
            case ast.Assign(targets=[ast.Attribute(attr="error_message", value=owner)]):
                if ast.dump(owner) == ast.dump(target.value):
                    return _template(other.value, texts)
    return ""


def _template(node: ast.expr | None, texts: Mapping[str, ast.expr]) -> str:
    """A text as its reader sees it, with the name of each value in braces."""
    match node:
        case None | ast.Constant(value=None):
            return ""
        case ast.Constant():
            return str(node.value)
        case ast.JoinedStr():
            return "".join(_template(part, texts) for part in node.values)
        case ast.FormattedValue():
            return _template(node.value, texts)
        case ast.BinOp(op=ast.Add()):
            return _template(node.left, texts) + _template(node.right, texts)
        case ast.IfExp():
            one, other = _template(node.body, texts), _template(node.orelse, texts)
            return f"[{one}|{other}]" if one and other else f"[{one or other}]"
        case ast.Name() if node.id in texts:
            return _template(texts[node.id], {k: v for k, v in texts.items() if k != node.id})
        case _:
            return f"{{{_short(node)}}}"


def _short(node: ast.expr) -> str:
    """The name of a value: the last part of an attribute, or what a call is about."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return node.attr
        case ast.Call(func=ast.Attribute(attr="join"), args=[inner, *_]):
            return _short(inner)
        case ast.Call(func=ast.Name(), args=[inner, *_]):
            return _short(inner)
        case ast.Call():
            return _last_name(node.func)
        case ast.Subscript() | ast.Starred() | ast.Await():
            return _short(node.value)
        case ast.BinOp():
            return _short(node.left)
        case ast.GeneratorExp() | ast.ListComp():
            return _short(node.generators[0].iter)
        case ast.BoolOp():
            return _short(node.values[0])
        case _:
            return "value"


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


HEAD = """\
# Errors

This page is generated from the code by `python -m tests.house.error_catalogue`; a test compares
them. It has every error code that a node answers, with the places and the messages, and the errors
of the tools.

## The rule for messages

A refusal says what is wrong, which node or record blocks, and what helps.

1. The code is Kafka's for the same request. Clients decide by it.
2. Where Kafka has a message, ours begins with it, word for word: users search for it, and tests
   compare it. Where Kafka's message has the print of a Java object, or describes its own internals,
   ours is different; [interop.md](interop.md#messages-of-refusals) lists these.
3. What Kafka's message lacks follows as sentences of our own: the *remedy*. It names the brokers,
   controllers or limits that block, all of them and not only the first (of more than ten, the number
   of the others), and the command or the setting that helps. Where Kafka's message has all that,
   nothing follows.
4. If a response has no field for a message, the tools print cause and remedy of the code from
   `quorate.admin.explanations`. This table is printed below, so a code without a row is an error of
   a test.
5. A text that only a log shows is ours, and names the node and the record first.

In the tables, braces contain the name of a value, and square brackets text that depends on the case.

## Codes
"""


def render() -> str:
    """The text of docs/errors.md."""
    found = refusals()
    lines = [HEAD]
    answered = {r.code for r in found if r.code}
    for code in sorted(ErrorCode):
        if code.name in answered:
            lines += [f"### {code.name} ({int(code)})", "", _filled(_explained(code)), ""]
            rows = [r for r in found if r.code == code.name]
            said = sorted({(r.message, r.remedy, r.module) for r in rows if r.message})
            if said:
                lines += ["| message | remedy | where |", "|---|---|---|"]
                lines += [f"| {_cell(m)} | {_cell(remedy)} | `{where}` |" for m, remedy, where in said]
                lines.append("")
            silent = sorted({r.module for r in rows if not r.message})
            if silent:
                lines += [_filled(f"Without a message: {', '.join(f'`{m}`' for m in silent)}."), ""]
    lines += ["## Codes of Apache Kafka's nodes only", "", "| code | cause | remedy |", "|---|---|---|"]
    for code in sorted(EXPLANATIONS):
        if code.name not in answered:
            cause, remedy = EXPLANATIONS[code]
            lines.append(f"| {code.name} ({int(code)}) | {cause} | {remedy} |")
    around = sorted({(r.message, r.remedy, r.module) for r in found if r.kind == "KafkaError" and not r.code})
    lines += [
        "",
        "## Texts around the message of another error",
        "",
        "| message | remedy | where |",
        "|---|---|---|",
    ]
    lines += [f"| {_cell(m)} | {_cell(remedy)} | `{where}` |" for m, remedy, where in around if m]
    lines += ["", "## Invalid configurations", ""]
    lines += ["The message is `Invalid value VALUE for configuration KEY: REASON (REMEDY)`.", ""]
    lines += ["| reason | remedy | where |", "|---|---|---|"]
    plain = sorted({(r.module, r.message, r.remedy) for r in found if r.kind == "ConfigError" and r.message})
    lines += [f"| {_cell(m)} | {_cell(remedy)} | `{where}` |" for where, m, remedy in plain]
    lines += ["", "## Errors of the tools", "", "| message | where |", "|---|---|"]
    tools = sorted({(r.module, r.message) for r in found if r.kind == "ToolError" and r.message.strip("{}")})
    lines += [f"| {_cell(message)} | `{where}` |" for where, message in tools]
    return "\n".join(lines) + "\n"


def _explained(code: ErrorCode) -> str:
    explanation = EXPLANATIONS.get(code)
    retriable = " Clients may send the same request again." if code.retriable else ""
    return f"{explanation if explanation is not None else 'No explanation.'}{retriable}"


def _filled(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split()) or " "


if __name__ == "__main__":
    DOCUMENT.write_text(render(), encoding="utf-8")
