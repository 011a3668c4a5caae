"""Worked examples: requests, each with the right call or answer.

The first ones are in every prompt. For a weak model, the examples most similar to the request are
added before it, and they vote for the tools (tool_choice.py). They also say which words the aids
know: a request of other words is not understood.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import cache
from typing import Any

import msgspec


class Example(msgspec.Struct, frozen=True):
    """A request, and the tool and arguments of the right call; without a tool, the answer."""

    user_text: str
    tool: str = ""
    arguments: dict[str, Any] = {}
    answer: str = ""


def _call(user_text: str, tool: str, **arguments: str) -> Example:
    return Example(user_text, tool, arguments)


def _answer(user_text: str, answer: str) -> Example:
    return Example(user_text, answer=answer)


EXAMPLES: tuple[Example, ...] = (
    _call("What files are here?", "ls", path="."),
    _call("What does util.py do?", "read", path="util.py"),
    _call("Where is parse_date used?", "grep", pattern="parse_date"),
    _call("Find all markdown files", "glob", pattern="**/*.md"),
    _call("Run the tests", "bash", command="python -m pytest -q"),
    _call("In app.py rename foo to bar", "edit", path="app.py", old="foo", new="bar"),
    _call("Make a file hello.txt that says hi", "write", path="hello.txt", content="hi\n"),
    _answer("What is a tuple?", "A sequence that cannot be changed."),
    _call("List the files here and say what this folder is", "ls", path="."),
    _call("List the files in this directory", "ls", path="."),
    _call("What is this folder?", "ls", path="."),
    _call("What is this project about?", "ls", path="."),
    _call("Describe this repository", "ls", path="."),
    _call("Look around and tell me what is in here", "ls", path="."),
    _call("Show me the contents of the src folder", "ls", path="src"),
    _call("What is inside docs?", "ls", path="docs"),
    _call("Which files are in tests/unit?", "ls", path="tests/unit"),
    _call("How many files are there?", "ls", path="."),
    _call("Read README.md", "read", path="README.md"),
    _call("Show me main.py", "read", path="main.py"),
    _call("Open config/settings.toml and explain it", "read", path="config/settings.toml"),
    _call("Summarize the file notes.txt", "read", path="notes.txt"),
    _call("What is in setup.cfg?", "read", path="setup.cfg"),
    _call("Print the contents of data.json", "read", path="data.json"),
    _call("Look at todo.md and tell me what is open", "read", path="todo.md"),
    _call("What does the README say?", "read", path="README.md"),
    _call("Search for TODO in the code", "grep", pattern="TODO"),
    _call("Which file defines the class Parser?", "grep", pattern="class Parser"),
    _call("Where is the function load_user defined?", "grep", pattern="def load_user"),
    _call("Find every mention of timeout", "grep", pattern="timeout"),
    _call("Look for the word deprecated", "grep", pattern="deprecated"),
    _call("Which files import requests?", "grep", pattern="import requests"),
    _call("Find all Python files", "glob", pattern="**/*.py"),
    _call("Is there a file named Dockerfile?", "glob", pattern="**/Dockerfile"),
    _call("Find the files ending in .json", "glob", pattern="**/*.json"),
    _call("Show git status", "bash", command="git status"),
    _call("What was the last commit?", "bash", command="git log -1"),
    _call("Show the commit log", "bash", command="git log --oneline"),
    _call("Run python main.py", "bash", command="python main.py"),
    _call("Which Python version is installed?", "bash", command="python --version"),
    _call("What is the current date?", "bash", command="date"),
    _call("How much disk space is free?", "bash", command="df -h"),
    _call("Count the lines of main.py", "bash", command="wc -l main.py"),
    _call("Delete the file old.log", "bash", command="rm old.log"),
    _call("Delete the folder tmp", "bash", command="rm -r tmp"),
    _call("Install the requirements", "bash", command="pip install -r requirements.txt"),
    _call("Make a folder named build", "bash", command="mkdir build"),
    _call("In main.py change port 80 to 8080", "edit", path="main.py", old="80", new="8080"),
    _call("Replace red with blue in theme.css", "edit", path="theme.css", old="red", new="blue"),
    _call("Fix the typo teh in intro.md", "edit", path="intro.md", old="teh", new="the"),
    _call("Create notes.md with the text buy milk", "write", path="notes.md", content="buy milk\n"),
    _call("Write a file a.py that prints hello", "write", path="a.py", content="print('hello')\n"),
    _call("Save the word done to status.txt", "write", path="status.txt", content="done\n"),
    _answer("Hello!", "Hello! What shall I do in this folder?"),
    _answer("Thank you", "You are welcome."),
    _answer("What is 2 + 3?", "5"),
    _answer("What does HTTP stand for?", "Hypertext Transfer Protocol."),
    _answer("Who are you?", "A small model on this machine, at work in this folder."),
    _answer("Explain what recursion is", "A function that calls itself on a smaller problem."),
    _answer("What is the capital of France?", "Paris."),
    _answer("How do I reverse a list in Python?", "Use items[::-1] or items.reverse()."),
    _call("Zeig mir main.py", "read", path="main.py"),
    _call("Was macht util.py?", "read", path="util.py"),
    _call("Welche Dateien sind hier?", "ls", path="."),
    _call("Montre-moi main.py", "read", path="main.py"),
    _call("Que fait util.py ?", "read", path="util.py"),
    _call("Quels fichiers sont ici ?", "ls", path="."),
    _call("Muéstrame main.py", "read", path="main.py"),
    _call("¿Qué hace util.py?", "read", path="util.py"),
    _call("¿Qué archivos hay aquí?", "ls", path="."),
)

# It asks for no work: greetings, thanks, and the question what the model can do.
SMALL_TALK = re.split(
    r" \| ",
    "Hello | Hi there | Say hello | Good morning | Good evening | How are you | Thank you | "
    "Who are you | What can you do | Help | "
    "Hallo | Guten Tag | Guten Morgen | Danke | Wer bist du | Was kannst du | Hilfe | "
    "Bonjour | Salut | Merci | Qui es-tu | Que peux-tu faire | Que sais-tu faire | Aide | "
    "Hola | Buenos días | Gracias | Quién eres | Qué puedes hacer | Qué sabes hacer | "
    "Ayuda",
)

FIXED_EXAMPLES = 8  # the first ones, which are in every prompt

# Any dotted word, also `0.0.0.0`: with the stricter pattern of argument_values.py the votes for
# tools (benchmarks/embedded) are worse.
_DOTTED_WORD = re.compile(r"[\w./-]*\w\.\w{1,5}\b")
_CODE = re.compile(r"\w+_\w+|\w+\(\)|[a-z]+[A-Z]\w*")
STOP_WORDS = frozenset(
    re.split(" ", "the a an of to in is it that this and me my i please can you for with was")
)


@cache
def extract_features(user_text: str) -> Counter[str]:
    """The features of a request: the stems of its words, and the kinds of names in it."""
    features: Counter[str] = Counter()
    rest, files = _DOTTED_WORD.subn(" ", user_text)
    rest, names = _CODE.subn(" ", rest)
    features.update({"<file>": min(files, 1), "<name>": min(names, 1)})
    if "/" in rest:
        features["<folder>"] += 1
    for word in re.findall(r"[^\W\d_]+|[0-9]+", rest.lower()):
        if word not in STOP_WORDS:
            features[_stem(word)] += 1
    return +features


def _stem(word: str) -> str:
    word = _SYNONYMS.get(word, word)
    for ending in ("ing", "ed", "es", "s"):
        if len(word) > len(ending) + 2 and word.endswith(ending):
            return word[: -len(ending)]
    return word


_SYNONYMS = {
    "directory": "folder", "repo": "folder", "repository": "folder", "project": "folder",
    "codebase": "folder", "dir": "folder", "contain": "inside", "contains": "inside",
    "display": "show", "print": "show", "view": "show", "create": "make", "add": "make",
    "write": "make", "execute": "run", "locate": "find", "change": "replace",
    "rename": "replace", "here": "folder", "summarise": "summarize", "tell": "say",
    "hi": "hello", "hey": "hello", "greetings": "hello", "remove": "delete", "erase": "delete",
    "thanks": "thank", "written": "inside", "content": "inside", "contents": "inside",
    "everything": "file", "start": "run", "launch": "run", "containing": "with", "history": "log",
    "commits": "log", "commit": "log", "mentions": "mention", "swap": "replace", "edit": "replace",
    "use": "used",
}  # fmt: skip


@cache
def _weigh_features() -> dict[str, float]:
    seen = Counter(word for example in EXAMPLES for word in extract_features(example.user_text))
    return {word: math.log(1 + len(EXAMPLES) / count) for word, count in seen.items()}


def is_small_talk(user_text: str) -> bool:
    """Whether a text consists of whole phrases of small talk, by their words, and nothing else."""
    words = extract_features(user_text).keys()
    talk = (extract_features(phrase).keys() for phrase in SMALL_TALK)
    return bool(words) and words == frozenset().union(*(one for one in talk if one <= words))


def measure_known_share(user_text: str) -> float:
    """The share of the words of a request that occur in an example."""
    words = [word for word in extract_features(user_text) if not word.startswith("<")]
    known = _weigh_features()
    return sum(word in known for word in words) / len(words) if words else 1.0


def rank_examples(user_text: str, tools: frozenset[str]) -> list[tuple[float, Example]]:
    """All answers and the examples with these tools, the most similar to the request first."""
    mine = extract_features(user_text)
    rarity = _weigh_features()
    weight = {word: count * rarity.get(word, 2.0) for word, count in mine.items()}
    norm = math.sqrt(sum(value * value for value in weight.values())) or 1.0
    ranked: list[tuple[float, Example]] = []
    for example in EXAMPLES:
        if example.tool and example.tool not in tools:
            continue
        theirs = extract_features(example.user_text)
        size = math.sqrt(sum((count * rarity[word]) ** 2 for word, count in theirs.items())) or 1.0
        shared = sum(weight[word] * rarity[word] for word in theirs if word in weight)
        ranked.append((shared / (norm * size), example))
    ranked.sort(key=lambda pair: -pair[0])
    return ranked
