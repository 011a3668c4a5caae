import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from treadle.apps.console.permission_history import run_backtest
from treadle.core.checkpoint_limits import MAX_FILE_BYTES
from treadle.core.contracts.policy import Allow, Ask, Deny, PermissionRequest
from treadle.core.contracts.tool import Access, ToolSpec
from treadle.lib.files.file_view import MAX_DIR_ENTRIES
from treadle.permissions.findings import PolicyCall, PolicyContext
from treadle.permissions.policy import RulePolicy, build_policy_context
from treadle.permissions.ruleset.rules import RuleSet, parse_rule
from treadle.permissions.ruleset.rules_file import parse_rules, read_rules
from treadle.permissions.suggestions import suggest_rules
from treadle.permissions.verdict import PermissionEvaluator
from treadle.tools.builtin import describe_access


def rules(**lists: list[str]) -> RuleSet:
    return parse_rules(lists, root="/r", home="/h")


def make_request(tool: str, effect: str = "irreversible", **arguments: object) -> PermissionRequest:
    spec = ToolSpec(tool, "", {}, effect=effect)  # type: ignore[arg-type]
    return PermissionRequest("s", "c", spec, arguments, "", describe_access(spec.name, arguments))


def policy(**given) -> RulePolicy:
    ruled = given.pop("rules", RuleSet())
    return RulePolicy(PolicyContext("/r", "/h", ruled, has_checkpoints=True), **given)


async def test_the_contract_gets_its_three_answers():
    decide = policy(rules=rules(deny=["Bash(rm:*)"])).decide
    assert isinstance(await decide(make_request("bash", command="git status")), Allow)
    assert isinstance(await decide(make_request("bash", command="rm x")), Deny)
    assert await decide(make_request("bash", command="npm test")) == Ask(
        "npm test: no rule allows it", ("Bash(npm test:*)",)
    )


async def test_rules_of_always_allow_are_saved_and_not_asked_again():
    saved: list[tuple[str, ...]] = []

    async def keep(rules: tuple[str, ...]) -> None:
        saved.append(rules)

    subject = policy(save_rules=keep)
    call = make_request("bash", command="cd /x && npm run build -- --fast > out.log")
    asked = await subject.decide(call)
    assert isinstance(asked, Ask)
    assert asked.rules == ("Bash(cd /x)", "Bash(npm run build:*)", "Edit(//x/out.log)")
    await subject.save_rules(call, asked.rules)
    assert saved == [asked.rules]
    assert isinstance(await subject.decide(call), Allow)
    assert isinstance(await subject.decide(make_request("bash", command="cd /x && curl e")), Ask)


async def test_fault_89_without_a_user_ask_becomes_deny_with_a_reason_for_the_model():
    verdict = await policy(interactive=False).decide(make_request("bash", command="npm test"))
    assert isinstance(verdict, Deny)
    assert verdict.kind == "headless"
    assert "npm test" in verdict.reason


async def test_fault_91_a_rules_file_changed_during_the_run_changes_nothing(tmp_path):
    file = tmp_path / "settings.json"
    file.write_text("{}")
    context = build_policy_context(tmp_path, read_rules(file, scope="x", root="/", home="/h"))
    subject = RulePolicy(context)
    file.write_text(json.dumps({"permissions": {"allow": ["Bash"]}}))
    assert isinstance(await subject.decide(make_request("bash", command="npm test")), Ask)


async def test_fault_92_without_the_sandbox_auto_asks_for_each_command():
    walled, open_ = policy(mode="auto", sandboxed=True), policy(mode="auto", sandboxed=False)
    call = make_request("bash", command="npm test")
    assert isinstance(await walled.decide(call), Allow)
    assert isinstance(await open_.decide(call), Ask)


@pytest.mark.parametrize(
    ("mode", "tool", "given", "expected"),
    [
        ("plan", "bash", {"command": "git status | head"}, Allow),
        ("plan", "bash", {"command": "npm test"}, Deny),
        ("plan", "bash", {"command": "ls > x"}, Deny),
        ("plan", "write", {"path": "/r/a"}, Deny),
        ("plan", "read", {"path": "/r/a"}, Allow),
        ("plan", "deploy", {}, Deny),
        ("ask", "write", {"path": "/r/a"}, Ask),
        ("accept-edits", "write", {"path": "/r/a"}, Allow),
        ("accept-edits", "write", {"path": "/r/.git/config"}, Ask),
        ("accept-edits", "write", {"path": "/x"}, Ask),
        ("accept-edits", "bash", {"command": "echo x > a"}, Allow),
        ("accept-edits", "bash", {"command": "mkdir -p a/b && touch a/b/c"}, Allow),
        ("accept-edits", "bash", {"command": "rm a"}, Allow),
        ("accept-edits", "bash", {"command": "npm test"}, Ask),
        ("auto", "edit", {"path": "/r/a"}, Allow),
        ("auto", "mcp__x__y", {}, Ask),
        ("auto", "bash", {"command": "$x"}, Ask),
        ("bypass", "bash", {"command": "npm test"}, Allow),
        ("bypass", "bash", {"command": "rm x"}, Deny),
        ("bypass", "write", {"path": "/etc/x"}, Allow),
    ],
)
async def test_modes(mode, tool, given, expected):
    subject = policy(mode=mode, sandboxed=True, rules=rules(deny=["Bash(rm:*)"]))
    if (mode, given.get("command")) == ("accept-edits", "rm a"):
        subject = policy(mode=mode)
    assert isinstance(await subject.decide(make_request(tool, **given)), expected)


@pytest.mark.parametrize(
    ("command", "expected"),
    [("git status", Allow), ("ls | head", Allow), ("echo x > a", Allow), ("npm test", Ask)],
)
async def test_in_auto_without_a_sandbox_only_commands_that_do_more_than_read_or_edit_ask(
    command, expected
):
    subject = policy(mode="auto", sandboxed=False)
    assert isinstance(await subject.decide(make_request("bash", command=command)), expected)


@pytest.mark.parametrize(
    ("tool", "arguments", "kind"),
    [
        ("bash", {"command": "npm test"}, Allow),
        ("bash", {"command": "python -m pytest | tail; git commit -am x"}, Allow),
        ("bash", {"command": "echo x > a.txt && rm -r b"}, Allow),  # and then fails there
        ("bash", {"command": "$(cat tool) x"}, Deny),  # it could be one that a rule denies
        ("bash", {"command": "curl e.com"}, Deny),
        ("bash", {"command": "make release"}, Deny),
        ("bash", {"command": "npm test", "sandbox": "network"}, Deny),
        ("bash", {"command": "npm test", "sandbox": "off"}, Deny),
        ("bash", {"command": "make check", "sandbox": "off"}, Deny),
        ("task_input", {"task_id": "t1", "text": "ls"}, Deny),
        ("write", {"path": "/r/a"}, Deny),
        ("deploy", {}, Deny),
    ],
)
async def test_commands_run_in_plan_mode_where_the_sandbox_is_read_only(
    tool: str, arguments: dict[str, Any], kind: type
):
    lists = rules(deny=["Bash(curl:*)"], ask=["Bash(make release)"], allow=["Bash(make check)"])
    call = make_request(tool, **arguments)
    inside = policy(rules=lists, mode="auto", sandboxed=True).narrow("plan", read_only=True)
    assert isinstance(await inside.decide(call), kind)
    without = policy(rules=lists, mode="auto").narrow("plan", read_only=True)
    assert isinstance(await without.decide(call), Deny)
    plain = policy(rules=lists, mode="auto", sandboxed=True).narrow("plan")
    assert isinstance(await plain.decide(call), Deny)
    assert inside.narrow("plan") is inside


async def test_an_allow_rule_takes_nothing_away_in_plan_mode():
    allowing = rules(allow=["look", "task", "deploy", "mcp__x__y"])
    subject = policy(mode="plan", rules=allowing)
    for tool in ("look", "task"):
        assert isinstance(await subject.decide(make_request(tool, "pure")), Allow)
    assert isinstance(await subject.decide(make_request("deploy")), Deny)
    assert isinstance(await subject.decide(make_request("mcp__x__y", "pure")), Deny)


async def test_in_auto_an_ask_rule_still_asks():
    subject = policy(mode="auto", sandboxed=True, rules=rules(ask=["Bash(git push:*)"]))
    assert isinstance(await subject.decide(make_request("bash", command="git push")), Ask)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("rm -rf clone", Ask),
        ("rm -rf tmp", Ask),
        ("rm -rf .git", Ask),
        ("cd tmp && rm -rf clone", Ask),
        ("rm .npmrc", Ask),
        ("rm -f .git/index.lock", Allow),
        ("rm -rf out node_modules", Allow),
        ("rm a.py", Allow),
    ],
)
async def test_in_auto_the_user_is_asked_before_protected_files_are_removed(
    tmp_path, command, expected
):
    for path in ("clone/.git/config", "tmp/clone/.git/config", ".git/config", ".git/index.lock",
                 "out/a", "node_modules/x/.npmrc", "a.py", ".npmrc"):  # fmt: skip
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    subject = RulePolicy(build_policy_context(tmp_path), mode="auto", sandboxed=True)
    verdict = await subject.decide(make_request("bash", command=command, cwd=str(tmp_path)))
    assert isinstance(verdict, expected), verdict
    assert expected is Allow or "protected" in verdict.reason
    own = command.rpartition("&& ")[2]
    exact = build_policy_context(tmp_path, rules(allow=[f"Bash({own})"]))
    subject = RulePolicy(exact, mode="auto", sandboxed=True)
    verdict = await subject.decide(make_request("bash", command=command, cwd=str(tmp_path)))
    assert isinstance(verdict, Allow), "a rule with the whole command allows it"


async def test_a_pure_tool_of_our_own_needs_no_rule_and_a_server_cannot_claim_to_be_pure():
    assert isinstance(await policy().decide(make_request("todo", "pure")), Allow)
    assert isinstance(await policy().decide(make_request("mcp__x__get", "pure")), Ask)


async def test_an_error_inside_is_never_an_allow():
    def broken(name: str) -> bool:
        raise RuntimeError("no definition")

    verdict = await policy(is_tool_changed=broken).decide(make_request("bash", command="ls"))
    assert isinstance(verdict, Deny)


@pytest.mark.parametrize(
    ("command", "proposed"),
    [
        ("git push origin main", ("Bash(git push origin main)",)),
        ("git commit -m x", ("Bash(git commit:*)",)),
        ("npm publish", ("Bash(npm publish)",)),
        ("npm ci", ("Bash(npm ci)",)),
        ("npm run build", ("Bash(npm run build:*)",)),
        ("python3 x.py", ("Bash(python3 x.py)",)),
        ("python3 -c 'print(1)'", ("Bash(python3 -c 'print(1)')",)),
        ("timeout 5 cargo test && ls", ("Bash(cargo test:*)",)),
        ("rm -rf build", ("Bash(rm -rf build)",)),
        ("pytest -q tests", ("Bash(pytest:*)",)),
        ("find . -delete", ("Bash(find . -delete)",)),
        ("echo x > a.txt", ("Edit(/a.txt)",)),
        ("cat /etc/hosts a.txt", ("Read(//etc/hosts)",)),
        ("sort -o out a", ("Edit(/out)", "Bash(sort -o out a)")),
        ("git fetch > /etc/x", ("Edit(//etc/x)", "Bash(git fetch:*)")),
        ("PAGER=cat git log", ("Bash(PAGER=cat git log:*)",)),
        ("echo x > .git/config", ("Edit(/.git/config)",)),
        ("make $X", ()),
        ("curl a | sh", ()),
        ("bash -c 'npm test; make all'", ("Bash(npm test:*)", "Bash(make all)")),
        ("sudo apt update", ("Bash(sudo apt update)",)),
        ("echo $(rm x)", ("Bash(rm x)",)),
        ("cd /o && cat x", ("Bash(cd /o)", "Read(//o/x)")),
        ("LANG=$(rm x) git status", ("Bash(rm x)",)),
    ],
)
def test_always_allow_proposes_the_narrowest_useful_rule_for_each_part(command, proposed):
    evaluator = PermissionEvaluator(PolicyContext("/r", "/h"))
    assert suggest_rules(PolicyCall("bash", Access(command=command)), evaluator) == proposed


@pytest.mark.parametrize(
    "command",
    [
        "pytest --version", "tsc --version", "cargo version x", "curl --version x", "git help log",
        "git tag foo", "git tag -n1 -d foo", "git tag -a foo", "git submodule update",
        "gzip a", "gzip -l -d a.gz", "gzip -lf a.gz", "gzip -lr src", "gzip -l -S x a", "nm @x",
        "nm --plugin=x a.o", "nm -l a.o", "objdump -S a.o", "objdump -dl a.o", "objdump @x",
        "gcc -dumpversion -wrapper x", "gcc -dumpversion @x", "php -v x.php", "php -r 1 -v",
    ],
)  # fmt: skip
def test_what_resembles_a_plain_reading_command_asks(command):
    evaluator = PermissionEvaluator(PolicyContext("/r", "/h"))
    assert evaluator.evaluate(PolicyCall("bash", Access(command=command))).outcome == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "python3 - <<'E'\nprint(1)\nE", "cat a | python3 -", "python3 < a", "python3.12 -u < a",
        "python3 -W ignore < a", "python3 -i x.py < a", "python3 /dev/stdin < a",
        "python3 /dev/fd/3 3< a", "python3 -m code < a", "node - < a", "node -r ./x < a",
        "node -i < a", "perl < a", "perl -w < a", "ruby < a", "php < a", "lua - < a",
        "psql < a", "psql -h h db < a", "mysql -uroot db < a", "sqlite3 x.db < a", "bc < a",
        "ed f < a", "vim -es f < a", "gdb prog < a", "ssh h < a", "ssh -p 22 h < a",
        "ssh h sh < a", "ssh h 'bash -s' < a", "docker run -i x sh < a", "docker exec -i x sh < a",
        "docker exec -it x < a", "docker exec x python3 - < a", "docker build - < a",
        "docker compose -f - up < a", "kubectl exec -i p -- sh < a", "kubectl apply -f - < a",
        "kubectl apply --filename=- < a", "make -f - < a", "make -f/dev/stdin < a",
        "source /dev/stdin < a", ". /dev/stdin < a", "crontab - < a", "at now < a", "batch < a",
        "uv run python - < a", "uv run python < a", "poetry run python3 - < a", "npx tsx - < a",
        "sudo python3 - < a", "timeout 5 python3 - < a", "env python3 - < a", "nix-shell < a",
        ".venv/bin/python - < a", "mytool --script=- < a", "pip install -r /dev/stdin < a",
        "./run - < a",
    ],
)  # fmt: skip
def test_no_rule_is_offered_for_code_on_standard_input(command):
    """The rule would allow any other code there."""
    evaluator = PermissionEvaluator(PolicyContext("/r", "/h"))
    assert suggest_rules(PolicyCall("bash", Access(command=command)), evaluator) == ()


def test_a_rule_of_the_users_own_covers_its_words_with_any_input():
    own = PolicyContext("/r", "/h", rules(allow=["Bash(python3 -)"]))
    for command, outcome in (("cat a | python3 -", "allow"), ("python3 - x < a", "ask")):
        call = PolicyCall("bash", Access(command=command))
        assert PermissionEvaluator(own).evaluate(call).outcome == outcome


@pytest.mark.parametrize(
    "command",
    [
        "python3 -u x.py < a", "python3 -m pytest", "perl -ne 'print' < a", "php -r 'echo 1;'",
        "node --test", "ruby -e 1", "psql -c 'select 1' db", "psql -f x.sql db", "ssh h ls",
        "sqlite3 x.db 'select 1'", "docker exec x ls", "docker run x ls", "kubectl apply -f x.yml",
        "uv run python x.py", "bash x.sh < a", "./program < a", "echo y | npm init",
        "git apply - < a", "gh pr view 12", "npm view x", "deno run x.ts", "make all < a",
        "tar xf - < a", "git commit -F - < a",
    ],
)  # fmt: skip
def test_a_rule_is_offered_where_the_words_say_what_runs(command):
    evaluator = PermissionEvaluator(PolicyContext("/r", "/h"))
    assert len(suggest_rules(PolicyCall("bash", Access(command=command)), evaluator)) == 1


@pytest.mark.parametrize(
    ("tool", "given", "proposed"),
    [
        ("write", {"path": "src/a.py"}, "Edit(/src/a.py)"),
        ("read", {"path": "/etc/hosts"}, "Read(//etc/hosts)"),
        ("read", {"path": "~/notes"}, "Read(~/notes)"),
        ("web_fetch", {"url": "https://A.example./x"}, "WebFetch(domain:a.example)"),
        ("web_fetch", {"url": "http://a.example:8443"}, "WebFetch(domain:a.example:8443)"),
        ("mcp__x__y", {}, "mcp__x__y"),
    ],
)
def test_always_allow_for_other_tools(tool, given, proposed):
    evaluator = PermissionEvaluator(PolicyContext("/r", "/h"))
    call = PolicyCall(tool, describe_access(tool, given))
    assert suggest_rules(call, evaluator) == (proposed,)


def test_a_rule_with_a_port_counts_beside_one_without():
    urls = ("https://x.org", "https://x.org:8443", "https://x.org:9000")
    allowed = rules(allow=["WebFetch(domain:x.org)", "WebFetch(domain:x.org:8443)"])
    evaluator = PermissionEvaluator(PolicyContext("/r", "/h", allowed))
    calls = [PolicyCall("web_fetch", Access(url=url)) for url in urls]
    assert [evaluator.evaluate(call).outcome for call in calls] == ["allow", "allow", "ask"]


def test_more_names_than_can_be_looked_at_are_asked_about(tmp_path):
    (tmp_path / "big").mkdir()
    for folder in (tmp_path, tmp_path / "big"):
        for number in range(MAX_DIR_ENTRIES + 1):
            (folder / f"f{number}").touch()
    everything = parse_rules(
        {"allow": ["Bash(rm:*)", "Bash(cp:*)", "Edit"]}, root=str(tmp_path), home="/h"
    )
    evaluator = PermissionEvaluator(PolicyContext(str(tmp_path), "/h", everything))
    for command in ("cat *", "rm *", "echo x > *", "cp -r big other", "rm -r big"):
        assert evaluator.evaluate(PolicyCall("bash", Access(command=command))).outcome == "ask", (
            command
        )
    assert evaluator.evaluate(PolicyCall("bash", Access(command="rm f1"))).outcome == "allow"


def test_a_rule_is_tried_on_the_past_before_it_is_saved():
    def asked(command: str) -> PolicyCall:
        return PolicyCall("bash", Access(command=command))

    past = [
        (asked("npm test"), "approved"),
        (asked("npm test -- -u"), "approved"),
        (asked("npm publish"), "denied"),
        (asked("make"), "approved"),
        (asked("npm test"), "allowed"),
    ]
    context = PolicyContext("/r", "/h")
    narrow = run_backtest([parse_rule("Bash(npm test:*)")], past, context)  # type: ignore[arg-type]
    assert str(narrow) == "would have covered 2 of 4 questions and no denied call"
    broad = run_backtest([parse_rule("Bash(npm:*)")], past, context)  # type: ignore[arg-type]
    assert str(broad) == "would have covered 2 of 4 questions and 1 of 1 denied calls"
    assert broad.warnings == ("bash: npm publish",)


@pytest.mark.parametrize(
    "command",
    [
        "cat $x notes/plan.md",  # asks for another reason first
        "./tool notes/plan.md",
        "bash -c 'cat $y notes/plan.md'",
        "cp /etc/hosts notes/plan.md && cat notes/plan.md",
        "echo `cat $z < notes/plan.md`",
    ],
)
async def test_in_auto_mode_an_ask_rule_on_a_file_asks_whatever_else_is_in_the_command(command):
    subject = policy(rules=rules(ask=["Read(notes/**)"]), mode="auto", sandboxed=True)
    assert isinstance(await subject.decide(make_request("bash", command=command)), Ask)


@pytest.mark.parametrize(
    "command",
    [
        "cat $x", "$x", "cat 'a", "echo )", "a &&& b", "bash -c $x", "eval $x", "env $x", "git $x",
        "awk $x a", "sed $x a", "cat < $x", "timeout $x ls", "f() { ls; }; f", "ls >&$x", "if ls",
        "coproc ls", "(( x ))", "ls | | ls", "a=(1 2); ls",
    ],
)  # fmt: skip
def test_reasons_use_no_words_of_the_parser(command):
    ruling = policy().evaluate(PolicyCall("bash", Access(command=command, cwd="/r")))
    assert ruling.outcome == "ask"
    reasons = " ".join(f"{finding.reason}" for finding in ruling.findings)
    assert not any(word in reasons for word in ("static", "ERROR", "not understood", "_"))


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("python3 -m unittest -q", "-m runs the code of the module unittest"),
        ("uv run python -m pytest", "-m runs the code of the module pytest"),
        ("python3 -c 'print(1)'", "code on the command line"),
    ],
)
def test_the_reason_says_where_the_code_of_a_python_command_is(command: str, reason: str):
    ruling = policy().evaluate(PolicyCall("bash", Access(command=command, cwd="/r")))
    assert reason in " ".join(f"{finding.reason}" for finding in ruling.findings)


@pytest.mark.parametrize(
    ("line", "has_checkpoints", "answer"),
    [
        ("rm a.py", True, Allow),
        ("rm a.py", False, Ask),
        ("rm data.db", True, Ask),  # git ignores it, so no checkpoint has it
        ("rm -r src", True, Ask),  # there is an ignored file in it
        ("rm -rf node_modules", True, Allow),
        ("find . -name '*.db' -delete", True, Ask),
        ("truncate -s 0 data.db", True, Ask),
        ("rm large.bin", True, Ask),  # too large for a checkpoint
        ("rm -r big", True, Ask),
        ("find . -name 'large.*' -delete", True, Ask),
        ("rm linked/b", True, Ask),  # a link to rules is not followed, so the rules above it hold
        ("rm ../added/a", True, Ask),  # a checkpoint has only the folder itself
    ],
)
async def test_edits_remove_only_what_a_checkpoint_has(
    tmp_path: Path, line: str, has_checkpoints: bool, answer: type
):
    folder, added = tmp_path / "ws", tmp_path / "added"
    names = ("a.py", "data.db", "src/b.py", "src/c.log", "node_modules/x.js", "linked/b")
    for file in (*(folder / name for name in names), added / "a"):
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text("x")
    for name in ("large.bin", "big/large.bin"):
        (folder / name).parent.mkdir(exist_ok=True)
        with (folder / name).open("wb") as file_too_large:
            file_too_large.truncate(MAX_FILE_BYTES + 1)
    (folder / ".gitignore").write_text("*.db\nnode_modules/\nb\n!src/b.py\n")
    (folder / "src/.gitignore").write_text("*.log\n")
    (folder / "rules").write_text("!b\n")
    (folder / "linked/.gitignore").symlink_to("../rules")
    context = build_policy_context(folder, extra_roots=(str(added),))
    context = replace(context, has_checkpoints=has_checkpoints)
    subject = RulePolicy(context, mode="accept-edits")
    request = make_request("bash", command=line)
    assert type(await subject.decide(request)) is answer
